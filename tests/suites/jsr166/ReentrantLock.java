import dlock.DLock;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock of dlock with the methods of java.util.concurrent's. */
class ReentrantLock implements Lock {
    final DLock lock;
    final Waiting waiting;
    private final boolean fair;
    private volatile Thread owner;

    ReentrantLock() {
        this(false);
    }

    ReentrantLock(boolean fair) {
        this(Server.CLIENT.lock(Server.name()), fair);
    }

    private ReentrantLock(DLock lock, boolean fair) {
        this.lock = lock;
        this.fair = fair;
        waiting = new Waiting(lock::getQueueLength);
    }

    private void entered() {
        owner = Thread.currentThread();
    }

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
    public void unlock() {
        if (lock.getHoldCount() == 1) {
            owner = null;
        }
        lock.unlock();
    }

    @Override
    public Condition newCondition() {
        return lock.newCondition();
    }

    boolean isFair() {
        return fair;
    }

    boolean isLocked() {
        return lock.isLocked();
    }

    boolean isHeldByCurrentThread() {
        return lock.isHeldByCurrentThread();
    }

    int getHoldCount() {
        return lock.getHoldCount();
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
        return lock.toString();
    }
}
