package dlock;

/**
 * Sends a command through a client that the program already has.
 *
 * <p>Several threads call it at the same time, so each call takes a connection of its own out of a pool: a call that
 * waits in a queue lasts up to {@link DLockClient.Builder#longestWait}, and nothing else can be sent on its connection
 * meanwhile.
 */
@FunctionalInterface
public interface Driver {
    /**
     * Sends a command and returns its reply.
     *
     * @param arguments the command's name and its arguments
     * @return {@code null} for nil, a {@code Long} for an integer, {@code byte[]} or {@code String} for a string, a
     *     {@code List} for an array
     * @throws Exception an error reply of the server is an exception whose message, or that of one of its causes, is the
     *     error: it begins with the code in upper case. All other exceptions count as a lost connection, after which
     *     the command is sent again
     */
    Object call(byte[]... arguments) throws Exception;
}
