package dlock;

import java.util.concurrent.CompletableFuture;

/** The way to the server that has a key. Nothing here repeats a command. */
interface Backend extends AutoCloseable {
    /** Whether a hold can be bound to a connection. */
    boolean hasSessions();

    /** Whether two keys can be used by one command. */
    boolean together(String one, String other);

    /**
     * Sends a command that is answered at once.
     *
     * @return the reply. Fails with {@link Unanswered} or {@link ServerException}
     */
    CompletableFuture<Object> ask(String key, byte[][] command);

    /** Returns a connection for a request that may wait. Nobody else sends anything on it until it is given back. */
    CompletableFuture<Line> line(String key);

    @Override
    void close();
}
