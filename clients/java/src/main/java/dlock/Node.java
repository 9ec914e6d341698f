package dlock;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The connections to one server: a shared one for commands that do not wait, and a pool for requests that may. */
final class Node {
    /** How many connections of the pool stay open while nobody uses them. */
    private static final int MAX_IDLE = 8;
    /** How long a server may be silent before it has to answer a PING on a new connection: it may be starting. */
    private static final long SILENCE_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    private final Loop loop;
    private final Address address;
    private final Profile profile;
    private final long timeoutMillis;
    private final Executor executor;
    private final ArrayDeque<Connection> idle = new ArrayDeque<>();
    /**
     * The connections on which requests wait, each with a function that finds the node which has the request's key now.
     */
    private final Map<Connection, Supplier<CompletableFuture<Node>>> waiting = new HashMap<>();
    /**
     * When the server last answered on any connection, by {@link System#nanoTime}; first, when this object was made.
     * The first connections are therefore opened without a PING. If the server is starting, it refuses the requests on
     * them, which counts as no answer, and they are repeated.
     */
    private volatile long answered = System.nanoTime();
    private CompletableFuture<Connection> shared;
    private boolean closed;
    /** Whether a series of checks runs: {@link #checkLater}. */
    private boolean isChecking;
    /** The number of the last series. */
    private int checks;
    /** The pause between two checks of the series. */
    private long pauseMillis;

    Node(Loop loop, Address address, Profile profile, long timeoutMillis, Executor executor) {
        this.loop = loop;
        this.address = address;
        this.profile = profile;
        this.timeoutMillis = timeoutMillis;
        this.executor = executor;
    }

    Address address() {
        return address;
    }

    /** Returns the shared connection. Connects if there is none, or if it has ended. */
    synchronized CompletableFuture<Connection> shared() {
        if (shared == null || shared.isCompletedExceptionally() || hasEnded(shared)) {
            shared = open();
        }
        return shared;
    }

    private static boolean hasEnded(CompletableFuture<Connection> connection) {
        return connection.isDone() && connection.join().ended().isDone();
    }

    /** Takes a connection out of the pool. Connects if the pool is empty. */
    CompletableFuture<Connection> take() {
        synchronized (this) {
            for (Connection next; (next = idle.poll()) != null; ) {
                if (!next.ended().isDone() && isAsNow(next)) {
                    return CompletableFuture.completedFuture(next);
                }
                next.close();
            }
        }
        return open();
    }

    /** Returns whether a new connection would be opened as this one was. */
    private boolean isAsNow(Connection connection) {
        try {
            return connection.greeting().equals(profile.greeting());
        } catch (RuntimeException e) {
            // The provider of the password has none now.
            return false;
        }
    }

    /** Puts a connection into the pool. Closes it if a reply is missing, for which the next user would have to wait. */
    void giveBack(Connection connection) {
        boolean kept = false;
        synchronized (this) {
            if (!closed && idle.size() < MAX_IDLE && connection.isIdle()) {
                idle.push(connection);
                kept = true;
            }
        }
        if (!kept) {
            connection.close();
        }
    }

    /** Sends a command that does not wait. Ends the connection if there is no reply in time. */
    CompletableFuture<Object> ask(Connection connection, byte[][] command) {
        return limited(connection, connection.send(command), timeoutMillis);
    }

    /** Ends the connection if the reply does not come within this time. */
    static CompletableFuture<Object> limited(Connection connection, CompletableFuture<Object> reply, long millis) {
        if (!reply.isDone()) {
            Timer.Task late = connection.timer().schedule(
                    () -> {
                        if (!reply.isDone()) {
                            connection.fail(new IOException("no reply within " + millis + " ms"));
                        }
                    },
                    TimeUnit.MILLISECONDS.toNanos(millis));
            reply.whenComplete((value, failed) -> late.cancel());
        }
        return reply;
    }

    /** Returns the last time at which the server answered on any connection, by {@link System#nanoTime}. */
    long answered() {
        return answered;
    }

    /**
     * Watches a request that waits. A server that hangs keeps its connections open, so checks on the shared connection
     * find out whether the server answers. If not, a request whose key is on another node now loses its connection, so
     * that it is sent there. The others keep their places in the queue.
     *
     * @param millis how often it has to be known whether the server answers
     */
    void watch(
            Connection connection,
            CompletableFuture<Object> reply,
            long millis,
            Supplier<CompletableFuture<Node>> where) {
        int begun = 0;
        synchronized (this) {
            waiting.put(connection, where);
            if (!isChecking || millis < pauseMillis) {
                isChecking = true;
                pauseMillis = Math.max(1, Math.min(millis, timeoutMillis));
                begun = ++checks;
            }
        }
        reply.whenComplete((done, failed) -> {
            synchronized (this) {
                waiting.remove(connection);
            }
        });
        if (begun > 0) {
            checkLater(begun);
        }
    }

    /**
     * Checks after a pause whether the server still answers, and again after that.
     *
     * @param number that of this series of checks, which ends when a newer one begins
     */
    private void checkLater(int number) {
        long pause;
        synchronized (this) {
            pause = pauseMillis;
        }
        long silence = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - answered);
        // After a failed check, the silence is longer than the pause. Then the next check comes after a whole pause.
        Futures.after(silence < pause ? pause - silence : pause).thenRun(() -> {
            synchronized (this) {
                if (number != checks) {
                    return;
                }
                isChecking = !closed && !waiting.isEmpty();
                if (!isChecking) {
                    return;
                }
            }
            if (System.nanoTime() - answered < TimeUnit.MILLISECONDS.toNanos(pause)) {
                checkLater(number);
                return;
            }
            shared().thenCompose(connection -> ask(connection, Words.command("PING"))).whenComplete((pong, failed) -> {
                // An error reply says that the server is there.
                if (failed != null && Futures.cause(failed) instanceof Unanswered) {
                    move();
                }
                checkLater(number);
            });
        });
    }

    /** Ends the connections whose requests wait for a key that is on another node now. */
    private void move() {
        Map<Connection, Supplier<CompletableFuture<Node>>> silent;
        synchronized (this) {
            silent = new HashMap<>(waiting);
        }
        silent.forEach((connection, where) -> where.get().thenAccept(node -> {
            if (node != this) {
                connection.fail(new IOException("the server does not answer, another one has taken over"));
            }
        }));
    }

    long timeoutMillis() {
        return timeoutMillis;
    }

    /** Ends the shared connection and the idle ones, because the server has changed its role. */
    void reset() {
        close(false);
    }

    void close() {
        close(true);
    }

    private void close(boolean forEver) {
        ArrayDeque<Connection> left;
        CompletableFuture<Connection> all;
        synchronized (this) {
            closed |= forEver;
            left = new ArrayDeque<>(idle);
            idle.clear();
            all = shared;
            shared = null;
        }
        left.forEach(Connection::close);
        if (all != null) {
            all.thenAccept(Connection::close);
        }
    }

    /**
     * Sends a PING to a server that was silent, and waits for the answer. The answers of the handshake prove nothing: a
     * server that is starting gives them, too, and so does an agent without servers. Without the PING, each request
     * would count as being at a server until its refusal.
     */
    private CompletableFuture<Connection> heard(Connection connection) {
        connection.whenHeard(() -> answered = System.nanoTime());
        if (System.nanoTime() - answered < SILENCE_NANOS) {
            return CompletableFuture.completedFuture(connection);
        }
        return ask(connection, Words.command("PING")).handle((pong, failed) -> {
            Throwable reason = Futures.cause(failed);
            if (failed == null || reason instanceof ServerException && !ServerException.isStarting(reason)) {
                return connection;
            }
            connection.close();
            throw Futures.rethrown(failed);
        });
    }

    private CompletableFuture<Connection> open() {
        try {
            // Runs on the executor, because resolving a name may block for longer than a connection may take.
            CompletableFuture<Connection> opening = CompletableFuture
                    .supplyAsync(() -> Connection.open(loop, address, profile, timeoutMillis), executor)
                    .thenCompose(opened -> opened)
                    .thenCompose(this::heard);
            CompletableFuture<Connection> limited = new CompletableFuture<>();
            opening.whenComplete((connection, failed) -> {
                if (failed != null) {
                    limited.completeExceptionally(Futures.cause(failed));
                } else if (!limited.complete(connection)) {
                    connection.close();
                }
            });
            return Futures.within(limited, timeoutMillis, address + " cannot be reached");
        } catch (RejectedExecutionException e) {
            // Without a cause, the executor was shut down. With one, there was no room for a thread: Core.rejecting.
            Throwable cause = e.getCause();
            String why = cause == null ? "the client is closed" : address + " cannot be reached: " + cause;
            return CompletableFuture.failedFuture(new Unanswered(why, e));
        }
    }
}
