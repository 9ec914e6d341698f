package dlock;

/**
 * Waiting would never end: owners would wait for each other in a cycle, or a second reader would wait for an upgrade.
 * The request has not joined the queue. Release a lock and try again.
 */
public final class DeadlockException extends ServerException {
    private static final long serialVersionUID = 1;

    DeadlockException(String message, Throwable cause) {
        super(message, cause);
    }
}
