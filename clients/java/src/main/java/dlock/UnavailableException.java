package dlock;

/**
 * No server answered in time: within the limit of the acquisition, or within the {@link DLockClient.Builder#patience}.
 * If the server executed the command nevertheless, the client releases the hold in the background. At the latest, the
 * hold lapses.
 */
public final class UnavailableException extends DLockException {
    private static final long serialVersionUID = 1;

    UnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
