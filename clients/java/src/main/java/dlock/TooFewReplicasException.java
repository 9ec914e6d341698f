package dlock;

/**
 * Too few replicas acknowledged a grant or a renewal in time. After a grant, the lock was released before this
 * exception was thrown. After a renewal, the lock is still held.
 */
public final class TooFewReplicasException extends DLockException {
    private static final long serialVersionUID = 1;

    private final long acknowledged;

    TooFewReplicasException(String message, long acknowledged) {
        super(message, null);
        this.acknowledged = acknowledged;
    }

    /** Returns the number of replicas that acknowledged the grant or the renewal. */
    public long acknowledged() {
        return acknowledged;
    }
}
