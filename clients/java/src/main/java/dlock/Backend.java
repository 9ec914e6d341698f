package dlock;

import java.util.concurrent.CompletableFuture;

/** Sends commands to the server that has a key. Never repeats a command. */
interface Backend extends AutoCloseable {
    /** Returns whether a hold can be bound to a connection, and whether commands can be pipelined. */
    boolean hasOwnConnections();

    /** Returns whether each key has a server of its own. */
    boolean isCluster();

    /** Returns the server that has a key, as far as is known. */
    CompletableFuture<String> serverOf(String key);

    /** Notes that the server of a key does not answer: the next command looks for the server that has the key now. */
    void distrust(String key);

    /** Returns whether one command can use both keys. */
    boolean together(String one, String other);

    /**
     * Sends a command that does not wait.
     *
     * @return the reply. Fails with {@link Unanswered} or {@link ServerException}
     */
    CompletableFuture<Object> ask(String key, byte[][] command);

    /** Returns a connection for one request that may wait. Nobody else uses the connection until it is given back. */
    CompletableFuture<DedicatedConnection> dedicated(String key);

    @Override
    void close();
}
