package dlock;

/**
 * Too few replicas acknowledged the grant or the renewal in time. A grant was released before this exception was
 * thrown. After a renewal the lock is still held.
 */
public final class TooFewReplicasException extends DLockException {
    private static final long serialVersionUID = 1;

    private final long acknowledged;

    TooFewReplicasException(String message, long acknowledged) {
        super(message, null);
        this.acknowledged = acknowledged;
    }

    /** Returns the number of replicas that acknowledged it. */
    public long acknowledged() {
        return acknowledged;
    }
}
