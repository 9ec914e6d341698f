import dlock.DLock;
import dlock.DReadWriteLock;
import java.util.concurrent.atomic.AtomicInteger;

/** A lock of dlock for readers and writers, with the methods of java.util.concurrent's. */
class ReentrantReadWriteLock extends Owned {
    private final ReadLock read;
    private final WriteLock write;
    private final AtomicInteger readers = new AtomicInteger();

    ReentrantReadWriteLock() {
        this(false);
    }

    ReentrantReadWriteLock(boolean fair) {
        this(Server.CLIENT.readWriteLock(Server.name()), fair);
    }

    private ReentrantReadWriteLock(DReadWriteLock lock, boolean fair) {
        super(fair, lock.writeLock());
        read = new ReadLock(lock.readLock());
        write = new WriteLock(lock.writeLock());
    }

    private abstract class OneSide implements Side {
        final DLock lock;

        OneSide(DLock lock) {
            this.lock = lock;
        }

        @Override
        public DLock side() {
            return lock;
        }

        @Override
        public Waiting waiting() {
            return waiting;
        }

        @Override
        public String toString() {
            return lock.toString();
        }
    }

    class ReadLock extends OneSide {
        ReadLock(DLock lock) {
            super(lock);
        }

        @Override
        public void entered() {
            readers.incrementAndGet();
        }

        @Override
        public void unlock() {
            boolean held = lock.getHoldCount() > 0;
            // The count goes down first: the next owner may read it as soon as the lock is free.
            readers.addAndGet(held ? -1 : 0);
            lock.unlock();
        }
    }

    class WriteLock extends OneSide {
        WriteLock(DLock lock) {
            super(lock);
        }

        @Override
        public void entered() {
            own();
        }

        @Override
        public void unlock() {
            ReentrantReadWriteLock.this.unlock(lock);
        }

        boolean isHeldByCurrentThread() {
            return lock.isHeldByCurrentThread();
        }

        int getHoldCount() {
            return lock.getHoldCount();
        }
    }

    ReadLock readLock() {
        return read;
    }

    WriteLock writeLock() {
        return write;
    }

    boolean isWriteLocked() {
        return write.lock.isLocked();
    }

    boolean isWriteLockedByCurrentThread() {
        return write.isHeldByCurrentThread();
    }

    int getWriteHoldCount() {
        return write.getHoldCount();
    }

    int getReadHoldCount() {
        return read.lock.getHoldCount();
    }

    int getReadLockCount() {
        return readers.get();
    }

    @Override
    public String toString() {
        return write.toString();
    }
}
