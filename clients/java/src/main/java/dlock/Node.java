package dlock;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The connections to one server: one for whatever is answered at once, and one for each request that may wait. */
final class Node {
    private static final int MAX_IDLE = 8;

    private final Loop loop;
    private final Address address;
    private final Login login;
    private final long timeoutMillis;
    private final Executor executor;
    private final ArrayDeque<Connection> idle = new ArrayDeque<>();
    private CompletableFuture<Connection> shared;
    private boolean closed;

    Node(Loop loop, Address address, Login login, long timeoutMillis, Executor executor) {
        this.loop = loop;
        this.address = address;
        this.login = login;
        this.timeoutMillis = timeoutMillis;
        this.executor = executor;
    }

    Address address() {
        return address;
    }

    /** The connection for all, made anew if the last one has ended. */
    synchronized CompletableFuture<Connection> shared() {
        if (shared == null || shared.isCompletedExceptionally() || hasEnded(shared)) {
            shared = open();
        }
        return shared;
    }

    private static boolean hasEnded(CompletableFuture<Connection> connection) {
        return connection.isDone() && connection.join().ended().isDone();
    }

    /** A connection for the caller alone. */
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

    /** Sends a command that is answered at once. A connection without an answer in time is given up. */
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

    long timeoutMillis() {
        return timeoutMillis;
    }

    /** Ends the connections that nothing is bound to, so that new ones are made: the server has changed. */
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
            // Looking up a name may block.
            return CompletableFuture.supplyAsync(() -> Connection.open(loop, address, login, timeoutMillis), executor)
                    .thenCompose(opened -> opened);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.failedFuture(new Unanswered("the client is closed", e));
        }
    }
}
