import dlock.DSemaphore;
import java.util.concurrent.TimeUnit;

/**
 * A semaphore of dlock with the methods of java.util.concurrent's, which may begin with any number of permits. The
 * limit on the server is {@code LIMIT}: the constructor takes all permits but those to begin with. A negative number is
 * a debt that the first releases pay.
 */
class Semaphore extends Queued {
    private static final int LIMIT = 1000;
    private final DSemaphore semaphore;
    private int debt;

    Semaphore(int permits) {
        this(permits, false);
    }

    Semaphore(int permits, boolean fair) {
        this(permits, fair, Server.CLIENT.semaphore(Server.name(), LIMIT));
    }

    private Semaphore(int permits, boolean fair, DSemaphore semaphore) {
        super(fair, semaphore::getQueueLength);
        this.semaphore = semaphore;
        debt = Math.max(0, -permits);
        semaphore.tryAcquire(LIMIT - permits - debt);
    }

    void acquire() throws InterruptedException {
        acquire(1);
    }

    void acquire(int permits) throws InterruptedException {
        waiting.interruptibly(() -> {
            semaphore.acquire(permits);
            return true;
        });
    }

    void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    void acquireUninterruptibly(int permits) {
        waiting.uninterruptibly(() -> semaphore.acquireUninterruptibly(permits));
    }

    boolean tryAcquire() {
        return semaphore.tryAcquire();
    }

    boolean tryAcquire(int permits) {
        return semaphore.tryAcquire(permits);
    }

    boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return tryAcquire(1, timeout, unit);
    }

    boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        return waiting.interruptibly(() -> semaphore.tryAcquire(permits, timeout, unit));
    }

    void release() {
        release(1);
    }

    void release(int permits) {
        semaphore.release(permits - paid(permits));
    }

    private synchronized int paid(int permits) {
        int paid = Math.max(0, Math.min(debt, permits));
        debt -= paid;
        return paid;
    }

    int availablePermits() {
        return semaphore.availablePermits() - debt;
    }

    int drainPermits() {
        return semaphore.drainPermits();
    }

    protected void reducePermits(int reduction) {
        throw new UnsupportedOperationException();
    }

    @Override
    public String toString() {
        return semaphore.toString();
    }
}
