package dlock;

import java.util.concurrent.CompletableFuture;

/** Sends commands to the server that has a key. It never repeats one. */
interface Backend extends AutoCloseable {
    /** Returns whether a hold can be bound to a connection, and whether commands can be sent behind each other. */
    boolean hasOwnConnections();

    /** Returns whether each key has a server of its own. */
    boolean isCluster();

    /** Returns the server that has a key, as far as is known. */
    CompletableFuture<String> serverOf(String key);

    /** Notes that the server of a key does not answer: where it is now has to be asked. */
    void distrust(String key);

    /** Returns whether one command can use both keys. */
    boolean together(String one, String other);

    /**
     * Sends a command that does not wait.
     *
     * @return the reply. Fails with {@link Unanswered} or {@link ServerException}
     */
    CompletableFuture<Object> ask(String key, byte[][] command);

    /** Returns a connection for one request that may wait. It is shared with nobody until it is returned. */
    CompletableFuture<DedicatedConnection> dedicated(String key);

    @Override
    void close();
}
