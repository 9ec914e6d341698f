import dlock.DLock;
import dlock.DReadWriteLock;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock of dlock for readers and writers, with the methods of java.util.concurrent's. */
class ReentrantReadWriteLock {
    private final boolean fair;
    private final ReadLock read;
    private final WriteLock write;
    private final Waiting waiting;
    private final AtomicInteger readers = new AtomicInteger();
    private volatile Thread owner;

    ReentrantReadWriteLock() {
        this(false);
    }

    ReentrantReadWriteLock(boolean fair) {
        this.fair = fair;
        DReadWriteLock lock = Server.CLIENT.readWriteLock(Server.name());
        read = new ReadLock(lock.readLock());
        write = new WriteLock(lock.writeLock());
        waiting = new Waiting(lock.writeLock()::getQueueLength);
    }

    /** A side of the lock. */
    abstract class Side implements Lock {
        final DLock lock;

        Side(DLock lock) {
            this.lock = lock;
        }

        abstract void entered();

        @Override
        public void lock() {
            waiting.uninterruptibly(lock::lock);
            entered();
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            waiting.interruptibly(() -> {
                lock.lockInterruptibly();
                return true;
            });
            entered();
        }

        @Override
        public boolean tryLock() {
            boolean granted = lock.tryLock();
            if (granted) {
                entered();
            }
            return granted;
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            boolean granted = waiting.interruptibly(() -> lock.tryLock(time, unit));
            if (granted) {
                entered();
            }
            return granted;
        }

        @Override
        public Condition newCondition() {
            return lock.newCondition();
        }

        @Override
        public String toString() {
            return lock.toString();
        }
    }

    class ReadLock extends Side {
        ReadLock(DLock lock) {
            super(lock);
        }

        @Override
        void entered() {
            readers.incrementAndGet();
        }

        @Override
        public void unlock() {
            boolean held = lock.getHoldCount() > 0;
            // Before the next owner can look.
            readers.addAndGet(held ? -1 : 0);
            lock.unlock();
        }
    }

    class WriteLock extends Side {
        WriteLock(DLock lock) {
            super(lock);
        }

        @Override
        void entered() {
            owner = Thread.currentThread();
        }

        @Override
        public void unlock() {
            if (lock.getHoldCount() == 1) {
                owner = null;
            }
            lock.unlock();
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

    boolean isFair() {
        return fair;
    }

    boolean isWriteLocked() {
        return write.lock.isLocked();
    }

    boolean isWriteLockedByCurrentThread() {
        return write.lock.isHeldByCurrentThread();
    }

    int getWriteHoldCount() {
        return write.lock.getHoldCount();
    }

    int getReadHoldCount() {
        return read.lock.getHoldCount();
    }

    int getReadLockCount() {
        return readers.get();
    }

    protected Thread getOwner() {
        return owner;
    }

    boolean hasQueuedThreads() {
        return !waiting.all().isEmpty();
    }

    boolean hasQueuedThread(Thread thread) {
        return waiting.has(thread);
    }

    int getQueueLength() {
        return waiting.size();
    }

    protected Collection<Thread> getQueuedThreads() {
        return waiting.all();
    }

    boolean hasWaiters(Condition condition) {
        throw new UnsupportedOperationException();
    }

    int getWaitQueueLength(Condition condition) {
        throw new UnsupportedOperationException();
    }

    protected Collection<Thread> getWaitingThreads(Condition condition) {
        throw new UnsupportedOperationException();
    }

    @Override
    public String toString() {
        return write.toString();
    }
}
