package dlock;

/**
 * Sends a command through another Redis client.
 *
 * <p>Several threads call {@link #call} at the same time. Each call needs a connection of its own, usually from a pool:
 * a call that waits occupies its connection for up to {@link DLockClient.Builder#longestWait}.
 */
@FunctionalInterface
public interface Driver {
    /**
     * Sends a command and returns its reply.
     *
     * @param arguments the command's name and its arguments
     * @return {@code null} for nil, a {@code Long} for an integer, {@code byte[]} or {@code String} for a string, a
     *     {@code List} for an array
     * @throws Exception for an error reply: the message of the exception, or of one of its causes, begins with the
     *     error's code in upper case. Any other exception counts as a lost connection: the command is sent again
     */
    Object call(byte[]... arguments) throws Exception;
}
