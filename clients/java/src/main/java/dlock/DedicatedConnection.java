package dlock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongFunction;

/** A connection for one request that waits in a queue, or that binds its hold to a session. */
interface DedicatedConnection {
    /** The request does not wait. */
    long NOT_AT_ALL = -1;

    /**
     * Sends the request.
     *
     * @param command returns the command for a time to wait in ms: 0 forever, or {@link #NOT_AT_ALL}
     * @param limit the end of the wait, and of the patience
     * @param waits whether it waits in the queue
     * @return the reply. Fails with {@link Unanswered} or {@link ServerException}
     */
    CompletableFuture<Object> request(LongFunction<byte[][]> command, Limits limit, boolean waits);

    /** Returns whether a copy of the request, sent here, may still be executed although the request has its outcome. */
    default boolean isCopied() {
        return false;
    }

    /** Sends a command that does not wait. */
    default CompletableFuture<Object> ask(byte[][] command) {
        return ask(command, 0);
    }

    /**
     * The same, but leaves the connection open if there is no reply in time. The command may still be executed: until the
     * connection has ended, nothing else is sent on it.
     */
    CompletableFuture<Object> askPatiently(byte[][] command);

    /** Sends a command that waits for this time at most. */
    CompletableFuture<Object> ask(byte[][] command, long millis);

    /**
     * Ends the request, and the use of the connection.
     *
     * @return the reply to the request, or {@code null}. Completes when the server will execute nothing more that was
     *     sent here. Never fails
     */
    default CompletableFuture<Object> leave() {
        return leave(List.of());
    }

    /**
     * The same, and undoes the request: whenever the server executes it, it executes these commands behind it. The server
     * may grant a lock to this connection for as long as it has not noticed the end of the connection.
     */
    CompletableFuture<Object> leave(List<byte[][]> undo);

    /** Returns the last time at which the server answered, by {@link System#nanoTime}. */
    long answered();

    /** Sets the task that runs when the connection ends. {@link #giveBack} removes it. */
    void whenEnded(Runnable task);

    /** Sets the task that runs when a key has changed that this connection tracks. */
    void whenInvalidated(Runnable task);

    /** Returns the connection to its pool, unless a reply is missing. No hold is bound to it. */
    void giveBack();
}
