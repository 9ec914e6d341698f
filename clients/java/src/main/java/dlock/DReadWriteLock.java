package dlock;

import java.util.concurrent.locks.ReadWriteLock;

/**
 * A lock that readers share and a writer has alone, in order: readers next to each other in the queue get in together,
 * and a reader does not overtake a writer that waits.
 *
 * <p>A thread that writes may also lock for reading, and then unlock for writing: it keeps reading. A thread that reads
 * may lock for writing: it waits until the other readers are gone, or gets a {@link DeadlockException} if another reader
 * waits for the same.
 */
public final class DReadWriteLock implements ReadWriteLock {
    private final DLock reading;
    private final DLock writing;

    DReadWriteLock(DLock reading, DLock writing) {
        this.reading = reading;
        this.writing = writing;
    }

    /** Returns the same lock, taken with that lease. */
    public DReadWriteLock withLease(Lease lease) {
        return new DReadWriteLock(reading.withLease(lease), writing.withLease(lease));
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
