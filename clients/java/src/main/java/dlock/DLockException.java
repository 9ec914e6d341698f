package dlock;

/** The reason why a lock could not be used. See the subclasses. */
public abstract class DLockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    DLockException(String message, Throwable cause) {
        super(message, cause);
    }
}
