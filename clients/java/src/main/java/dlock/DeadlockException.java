package dlock;

/**
 * Waiting would never end: a circle of owners would wait for each other, two readers would both wait to write, or a
 * thread would wait for itself. The request has not joined the queue; release something and try again.
 */
public final class DeadlockException extends ServerException {
    private static final long serialVersionUID = 1;

    DeadlockException(String message, Throwable cause) {
        super(message, cause);
    }
}
