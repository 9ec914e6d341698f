package dlock;

/**
 * No server answered within {@link DLockClient.Builder#patience}. Whatever the unanswered command may have taken is
 * given back in the background, and lapses with its lease at the latest.
 */
public final class UnavailableException extends DLockException {
    private static final long serialVersionUID = 1;

    UnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
