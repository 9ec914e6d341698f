package dlock;

import java.time.Duration;
import java.util.concurrent.locks.ReadWriteLock;

/**
 * A lock for readers, who share it, and writers, who exclude all others. The queue is first come, first served: a
 * reader does not overtake a waiting writer, and adjacent readers are granted together.
 *
 * <p>Downgrade: a thread that writes may lock for reading, and then unlock the write lock. Upgrade: a thread that reads
 * may lock for writing. It waits until the other readers have unlocked, or gets a {@link DeadlockException} if another
 * reader already waits for an upgrade.
 */
public final class DReadWriteLock implements ReadWriteLock {
    private final DLock reading;
    private final DLock writing;

    DReadWriteLock(DLock reading, DLock writing) {
        this.reading = reading;
        this.writing = writing;
    }

    /** Returns the same lock with this lease. */
    public DReadWriteLock withLease(Lease lease) {
        return new DReadWriteLock(reading.withLease(lease), writing.withLease(lease));
    }

    /** Returns the same lock, whose grants and renewals this many replicas must acknowledge. */
    public DReadWriteLock withReplicas(int count, Duration timeout) {
        return new DReadWriteLock(reading.withReplicas(count, timeout), writing.withReplicas(count, timeout));
    }

    /** Returns the same lock with this patience, as {@link DLock#withPatience} says. */
    public DReadWriteLock withPatience(Duration patience) {
        return new DReadWriteLock(reading.withPatience(patience), writing.withPatience(patience));
    }

    /** Returns the same lock, which is held for this time at most, as {@link DLock#withMaxHold} says. */
    public DReadWriteLock withMaxHold(Duration most) {
        return new DReadWriteLock(reading.withMaxHold(most), writing.withMaxHold(most));
    }

    /** Returns the same lock, which stays for this time at least, as {@link DLock#withAtLeast} says. */
    public DReadWriteLock withAtLeast(Duration least) {
        return new DReadWriteLock(reading.withAtLeast(least), writing.withAtLeast(least));
    }

    @Override
    public DLock readLock() {
        return reading;
    }

    @Override
    public DLock writeLock() {
        return writing;
    }
}
