package dlock;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The connections to one server: a shared one for commands that do not wait, and a pool for requests that may. */
final class Node {
    private static final int MAX_IDLE = 8;

    private final Loop loop;
    private final Address address;
    private final Login login;
    private final long timeoutMillis;
    private final Executor executor;
    private final ArrayDeque<Connection> idle = new ArrayDeque<>();
    /** The connections on which requests wait. */
    private final Set<Connection> waiting = new HashSet<>();
    private final long patienceMillis;
    private CompletableFuture<Connection> shared;
    private boolean closed;
    private boolean isChecking;
    /** The end of the patience with a server that does not answer; {@code null}: it answers. */
    private Deadline silence;

    Node(Loop loop, Address address, Login login, long timeoutMillis, long patienceMillis, Executor executor) {
        this.loop = loop;
        this.address = address;
        this.login = login;
        this.timeoutMillis = timeoutMillis;
        this.patienceMillis = patienceMillis;
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
                if (!next.ended().isDone()) {
                    return CompletableFuture.completedFuture(next);
                }
            }
        }
        return open();
    }

    void giveBack(Connection connection) {
        boolean kept = false;
        synchronized (this) {
            if (!closed && idle.size() < MAX_IDLE && !connection.ended().isDone()) {
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

    /** Ends the connection if the reply does not come within that time. */
    static CompletableFuture<Object> limited(Connection connection, CompletableFuture<Object> reply, long millis) {
        reply.copy().orTimeout(millis, TimeUnit.MILLISECONDS).whenComplete((value, failed) -> {
            if (failed != null && Futures.cause(failed) instanceof TimeoutException) {
                connection.fail(new IOException("no reply within " + millis + " ms"));
            }
        });
        return reply;
    }

    /**
     * Watches a request that waits. A server that hangs keeps its connections open, so while requests wait, the shared
     * connection is used to find out whether the server still answers.
     */
    void watch(Connection connection, CompletableFuture<Object> reply) {
        boolean isFirst;
        synchronized (this) {
            waiting.add(connection);
            isFirst = !isChecking;
            isChecking = true;
        }
        reply.whenComplete((done, failed) -> {
            synchronized (this) {
                waiting.remove(connection);
            }
        });
        if (isFirst) {
            checkLater();
        }
    }

    private void checkLater() {
        Futures.after(timeoutMillis).thenRun(() -> {
            synchronized (this) {
                isChecking = !closed && !waiting.isEmpty();
                if (!isChecking) {
                    silence = null;
                    return;
                }
            }
            shared().thenCompose(connection -> ask(connection, Words.command("PING")))
                    .whenComplete((pong, failed) -> checked(failed));
        });
    }

    private void checked(Throwable failed) {
        List<Connection> left = List.of();
        synchronized (this) {
            // An error reply is an answer too.
            if (failed == null || !(Futures.cause(failed) instanceof Unanswered)) {
                silence = null;
            } else if (silence == null) {
                silence = Deadline.afterMillis(patienceMillis);
            } else if (silence.hasPassed()) {
                left = new ArrayList<>(waiting);
            }
        }
        if (!left.isEmpty()) {
            reset();
            left.forEach(connection -> connection.fail(new IOException("the server does not answer")));
        }
        checkLater();
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

    private CompletableFuture<Connection> open() {
        try {
            // Resolving a name may block.
            return CompletableFuture.supplyAsync(() -> Connection.open(loop, address, login, timeoutMillis), executor)
                    .thenCompose(opened -> opened);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.failedFuture(new Unanswered("the client is closed", e));
        }
    }
}
