package dlock;

/**
 * The lock ended before it was released: its lease ran out, its session ended, or somebody deleted its key. Work that
 * was done under the lock may have overlapped with that of the next owner.
 *
 * <p>It is an {@link IllegalMonitorStateException}, because that is what {@code unlock} of a lock throws if the thread
 * does not hold it.
 */
public final class LockLostException extends IllegalMonitorStateException {
    private static final long serialVersionUID = 1;

    LockLostException(String message, Throwable cause) {
        super(message);
        initCause(cause);
    }
}
