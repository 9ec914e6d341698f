package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.function.LongFunction;

/** A connection that one request has for itself, to wait in a queue, and perhaps to bind its hold to. */
interface Line {
    /** Not a time to wait. */
    long NOT_AT_ALL = -1;

    /**
     * Sends the request, and waits for its reply.
     *
     * @param command makes the command from the milliseconds that it is to wait: 0 for ever, or {@link #NOT_AT_ALL}
     * @param end when the wait ends
     * @return when the reply came, and the reply. Fails with {@link Unanswered} or {@link ServerException}
     */
    CompletableFuture<Object> request(LongFunction<byte[][]> command, Deadline end);

    /** Sends a command that is answered at once. */
    CompletableFuture<Object> ask(byte[][] command);

    /**
     * Ends the request, answered or not. The line must not be used afterwards.
     *
     * @return completes when the server has executed all that was sent here, or can do so no longer: with the reply to
     *     the request, or with {@code null} if there was none. Never fails
     */
    CompletableFuture<Object> leave();

    /** Has that run when the connection ends, at once if it has ended, unless the line is given back before. */
    void whenEnded(Runnable task);

    /** Lets others use the connection. Nothing is waiting, and nothing is bound to it. */
    void giveBack();
}
