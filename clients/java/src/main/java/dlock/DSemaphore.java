package dlock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Permits that the programs on all machines share, with the methods of {@link java.util.concurrent.Semaphore}.
 *
 * <p>The limit belongs to the request: nothing has to be created, and no permit is lost with a process that dies, since
 * each acquisition has its own lease. Requests are served in order, so a large one holds back smaller ones behind it.
 *
 * <p>Permits belong to no thread: any thread of this client may release what another one has acquired, but no more than
 * was acquired through this client.
 */
public final class DSemaphore {
    private final Core core;
    private final String name;
    private final long limit;
    private final Lease lease;
    private final List<Consumer<? super LockLostException>> listeners = new CopyOnWriteArrayList<>();

    DSemaphore(Core core, String name, long limit, Lease lease) {
        if (limit < 1 || limit > 0xffffffffL) {
            throw new IllegalArgumentException("a limit is 1 to 4294967295, not " + limit);
        }
        if (lease.kind == Lease.Kind.SESSION && !core.backend.hasSessions()) {
            throw new IllegalArgumentException("a driver has no connections that a session could be bound to");
        }
        this.core = core;
        this.name = name;
        this.limit = limit;
        this.lease = lease;
    }

    /** Returns the same semaphore, with that lease for what is acquired through it. */
    public DSemaphore withLease(Lease other) {
        return new DSemaphore(core, name, limit, other);
    }

    /** Returns how many permits there are. */
    public long limit() {
        return limit;
    }

    /** Has a listener told of permits that were acquired through this object from now on, and are lost. */
    public DSemaphore onLost(Consumer<? super LockLostException> listener) {
        listeners.add(listener);
        return this;
    }

    /** Waits for a permit, unless the thread is interrupted: then it has left the queue when that is thrown. */
    public void acquire() throws InterruptedException {
        acquire(1);
    }

    /** Waits for so many permits together. */
    public void acquire(int permits) throws InterruptedException {
        DLock.checkInterrupt();
        keep(granting(permits, Deadline.NEVER).awaitInterruptibly());
    }

    /** Waits for a permit, whatever interrupts it. */
    public void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    /** Waits for so many permits together, whatever interrupts it. */
    public void acquireUninterruptibly(int permits) {
        keep(granting(permits, Deadline.NEVER).await());
    }

    /** Takes a permit if there is one and nobody waits. */
    public boolean tryAcquire() {
        return tryAcquire(1);
    }

    /** Takes so many permits if there are and nobody waits. */
    public boolean tryAcquire(int permits) {
        return keep(granting(permits, Deadline.afterMillis(0)).await());
    }

    /** Waits for a permit at most that long. */
    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return tryAcquire(1, timeout, unit);
    }

    /** Waits for so many permits at most that long. */
    public boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        DLock.checkInterrupt();
        return keep(granting(permits, Deadline.afterNanos(unit.toNanos(timeout))).awaitInterruptibly());
    }

    /** Waits for permits without a thread, for a hold of their own: they are released by it, not by {@link #release}. */
    public CompletableFuture<Hold> acquireAsync(int permits) {
        return DLock.asynchronously(core, granting(permits, Deadline.NEVER));
    }

    /** Waits for permits at most that long, for a hold of their own. Empty: they were not granted in time. */
    public Optional<Hold> tryAcquireHold(int permits, Duration wait) throws InterruptedException {
        DLock.checkInterrupt();
        return Optional.ofNullable(granting(permits, DLock.after(wait)).awaitInterruptibly());
    }

    /** Releases a permit. */
    public void release() {
        release(1);
    }

    /**
     * Releases so many permits: first those that the current thread acquired last, then those of other threads.
     *
     * @throws IllegalStateException there are fewer that were acquired through this client; nothing was released
     * @throws LockLostException some of them were lost before; the others are released
     */
    public void release(int permits) {
        positive(permits);
        List<CompletableFuture<Boolean>> released = core.permits.release(name, permits);
        boolean all = true;
        for (CompletableFuture<Boolean> each : released) {
            all &= Hold.join(each);
        }
        if (!all) {
            throw new LockLostException("permits of " + name + " were lost before their release", null);
        }
    }

    /**
     * Returns the fencing token of what the current thread acquired last and has not released.
     *
     * @throws IllegalMonitorStateException there is nothing
     */
    public long fencingToken() {
        Hold last = core.permits.lastOf(name, Thread.currentThread());
        if (last == null) {
            throw new IllegalMonitorStateException(Thread.currentThread() + " has acquired no permits of " + name);
        }
        return last.fencingToken();
    }

    /** Asks the server how many permits are left; 0 while somebody holds the name as an exclusive lock. */
    public int availablePermits() {
        return (int) Math.min(Integer.MAX_VALUE, LockInfo.of(core, name).available(limit));
    }

    /** Takes all the permits that are left, and returns how many these were. */
    public int drainPermits() {
        for (;;) {
            int left = availablePermits();
            if (left == 0 || tryAcquire(left)) {
                return left;
            }
            if (getQueueLength() > 0) {
                return 0;
            }
        }
    }

    /** Asks the server how many requests wait. */
    public int getQueueLength() {
        return LockInfo.of(core, name).waiters;
    }

    /** Asks the server whether anybody waits. */
    public boolean hasQueuedThreads() {
        return getQueueLength() > 0;
    }

    /** Returns true: the queue is in order. */
    public boolean isFair() {
        return true;
    }

    private Granting granting(int permits, Deadline end) {
        core.checkOpen();
        positive(permits);
        if (permits > limit) {
            throw new IllegalArgumentException("there are " + limit + " permits, never " + permits);
        }
        return new Granting(
                core, Request.permits(name, limit, permits, lease), core.freshOwner(), end, null, listeners);
    }

    private static void positive(int permits) {
        if (permits < 1) {
            throw new IllegalArgumentException("not a number of permits: " + permits);
        }
    }

    private boolean keep(Hold hold) {
        if (hold == null) {
            return false;
        }
        core.permits.add(name, hold);
        return true;
    }

    @Override
    public String toString() {
        return "DSemaphore " + name + " of " + limit;
    }
}
