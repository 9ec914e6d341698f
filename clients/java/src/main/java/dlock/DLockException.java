package dlock;

/** A failure of a command. The subclasses tell the reasons apart. */
public abstract class DLockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    DLockException(String message, Throwable cause) {
        super(message, cause);
    }
}
