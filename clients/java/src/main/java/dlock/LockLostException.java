package dlock;

/**
 * The hold ended before it was released: its lease or its session ended, it reached its cap, another client released it
 * or removed its key, or the server refuses to renew it. The work under the lock may have overlapped with the next
 * owner's. {@link Hold#extend}, {@link Hold#handOver} and {@link DLock#resume} also throw it if the hold was released.
 *
 * <p>It extends {@link IllegalMonitorStateException}, which {@code unlock} throws if the thread does not hold the lock.
 */
public final class LockLostException extends IllegalMonitorStateException {
    private static final long serialVersionUID = 1;

    LockLostException(String message, Throwable cause) {
        super(message);
        initCause(cause);
    }
}
