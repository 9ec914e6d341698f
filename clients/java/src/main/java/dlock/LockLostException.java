package dlock;

/**
 * The hold ended before it was released: its lease or its session ended, or another client deleted the key. The work
 * under the lock may have overlapped with the next owner's.
 *
 * <p>It extends {@link IllegalMonitorStateException}, which {@code Lock.unlock} throws if the thread does not hold the
 * lock.
 */
public final class LockLostException extends IllegalMonitorStateException {
    private static final long serialVersionUID = 1;

    LockLostException(String message, Throwable cause) {
        super(message);
        initCause(cause);
    }
}
