import dlock.DLock;

/** A lock of dlock with the methods of java.util.concurrent.locks.ReentrantLock that the tests call. */
class ReentrantLock extends Owned implements Side {
    private final DLock lock;

    ReentrantLock() {
        this(false);
    }

    ReentrantLock(boolean fair) {
        this(Server.CLIENT.lock(Server.name()), fair);
    }

    private ReentrantLock(DLock lock, boolean fair) {
        super(fair, lock);
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
    public void entered() {
        own();
    }

    @Override
    public void unlock() {
        unlock(lock);
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

    @Override
    public String toString() {
        return lock.toString();
    }
}
