import dlock.DLock;
import java.util.Collection;
import java.util.concurrent.locks.Condition;

/** The methods by which the tests ask about a lock that is exclusive. */
abstract class Owned extends Queued {
    private volatile Thread owner;

    Owned(boolean fair, DLock lock) {
        super(fair, lock::getQueueLength);
    }

    void own() {
        owner = Thread.currentThread();
    }

    /** Unlocks a lock that this thread holds exclusively. */
    void unlock(DLock lock) {
        if (lock.getHoldCount() == 1) {
            owner = null;
        }
        lock.unlock();
    }

    protected Thread getOwner() {
        return owner;
    }

    boolean hasQueuedThread(Thread thread) {
        return waiting.has(thread);
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
}
