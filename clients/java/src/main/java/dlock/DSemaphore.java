package dlock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A semaphore that programs on all machines share, with the methods of {@link java.util.concurrent.Semaphore}.
 *
 * <p>The limit is a part of each request, so a semaphore is not created or resized. Each acquisition has its own lease,
 * so the permits of a dead process return. The queue is first come, first served: a large request holds back smaller
 * ones behind it.
 *
 * <p>Permits do not belong to threads: a thread may release permits that another thread of this client has acquired.
 * Two threads that each hold permits and wait for more can block each other forever.
 */
public final class DSemaphore {
    private final Core core;
    private final String name;
    private final long limit;
    /** A request for one permit. */
    private final Request one;
    private final List<Consumer<? super LockLostException>> listeners = new CopyOnWriteArrayList<>();

    DSemaphore(Core core, String name, long limit, Lease lease) {
        this(core, name, limit, Request.permits(name, limit, 1, lease));
    }

    private DSemaphore(Core core, String name, long limit, Request one) {
        if (limit < 1 || limit > 0xffffffffL) {
            throw new IllegalArgumentException("a limit must be 1 to 4294967295, not " + limit);
        }
        this.core = core;
        this.name = name;
        this.limit = limit;
        this.one = one;
        one.checkFor(core);
    }

    /** Returns the same semaphore with this lease. */
    public DSemaphore withLease(Lease other) {
        return new DSemaphore(core, name, limit, one.with(other));
    }

    /** Returns the same semaphore, whose grants and renewals this many replicas must acknowledge. */
    public DSemaphore withReplicas(int count, Duration timeout) {
        return new DSemaphore(core, name, limit, one.with(new Replicas(count, timeout)));
    }

    /** Returns the same semaphore with this patience, as {@link DLock#withPatience} does. */
    public DSemaphore withPatience(Duration patience) {
        return new DSemaphore(core, name, limit, one.with(patience));
    }

    /** Returns the same semaphore, whose permits are held for this time at most, as {@link DLock#withMaxHold} says. */
    public DSemaphore withMaxHold(Duration most) {
        return new DSemaphore(core, name, limit, one.with(one.time.atMost(most)));
    }

    /** Returns the same semaphore, whose permits stay for this time at least, as {@link DLock#withAtLeast} says. */
    public DSemaphore withAtLeast(Duration least) {
        return new DSemaphore(core, name, limit, one.with(one.time.atLeast(least)));
    }

    /**
     * Returns the same semaphore, whose permits have numbers ({@code SLOT}): the lowest free number from 0 to the
     * limit - 1. For pools of devices, and ids of workers. Each acquisition takes one permit.
     */
    public DSemaphore withSlots() {
        return new DSemaphore(core, name, limit, one.withSlot());
    }

    /** Returns the number of permits. */
    public long limit() {
        return limit;
    }

    /** Adds a listener for permits that are acquired through this object from now on and then lost. */
    public DSemaphore onLost(Consumer<? super LockLostException> listener) {
        listeners.add(listener);
        return this;
    }

    /** Acquires a permit unless the thread is interrupted, as {@link DLock#lockInterruptibly} does. */
    public void acquire() throws InterruptedException {
        acquire(1);
    }

    /** Acquires permits, all at once, unless the thread is interrupted. */
    public void acquire(int permits) throws InterruptedException {
        DLock.checkInterrupt();
        if (permits != 0) {
            keep(granting(permits, one.unlimited(core)).awaitInterruptibly());
        }
    }

    /** Acquires a permit. An interrupt does not end the wait. */
    public void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    /** Acquires permits, all at once. An interrupt does not end the wait. */
    public void acquireUninterruptibly(int permits) {
        if (permits != 0) {
            keep(granting(permits, one.unlimited(core)).await());
        }
    }

    /** Acquires a permit if one is free and there are no waiters. */
    public boolean tryAcquire() {
        return tryAcquire(1);
    }

    /**
     * Acquires permits if enough are free and there are no waiters. A request for 0 permits always succeeds, and one
     * for more than the limit never does: neither asks the server.
     */
    public boolean tryAcquire(int permits) {
        return permits == 0 || !isTooMany(permits) && keep(granting(permits, one.limited(core, 0)).await());
    }

    /** Acquires a permit, and waits for this time at most. */
    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return tryAcquire(1, timeout, unit);
    }

    /** Acquires permits, all at once, and waits for this time at most. Does not wait for more permits than there are. */
    public boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        DLock.checkInterrupt();
        return permits == 0 || !isTooMany(permits)
                && keep(granting(permits, one.limited(core, unit.toNanos(timeout))).awaitInterruptibly());
    }

    /**
     * Acquires permits without a thread that waits, as {@link DLock#acquireAsync} does. Release them by the hold, not
     * by {@link #release}.
     */
    public CompletableFuture<Hold> acquireAsync(int permits) {
        return DLock.asynchronously(core, granting(permits, one.unlimited(core)), hold -> hold);
    }

    /** Acquires permits as a hold, and waits for this time at most. Empty: they were not granted in time. */
    public Optional<Hold> tryAcquireHold(int permits, Duration wait) throws InterruptedException {
        DLock.checkInterrupt();
        return isTooMany(permits)
                ? Optional.empty()
                : Optional.ofNullable(granting(permits, one.limited(core, wait)).awaitInterruptibly());
    }

    /** Releases a permit. */
    public void release() {
        release(1);
    }

    /**
     * Releases permits, newest first: those of the current thread, then those of other threads. Does nothing for 0.
     *
     * @throws IllegalStateException the threads of this client hold fewer permits. No permit is released
     * @throws LockLostException some permits were lost before. The others are released
     */
    public void release(int permits) {
        if (permits == 0) {
            return;
        }
        positive(permits);
        List<CompletableFuture<Boolean>> released = core.permits.release(name, permits);
        boolean all = true;
        for (CompletableFuture<Boolean> each : released) {
            all &= Futures.join(each);
        }
        if (!all) {
            throw new LockLostException("permits of " + name + " were lost before their release", null);
        }
    }

    /**
     * Returns the fencing token of the permits that the current thread acquired last. A lower token may belong to a live
     * hold: {@code docs/tokens.md} has the rules by which a resource compares.
     *
     * @throws IllegalMonitorStateException the thread holds no permits
     */
    public long fencingToken() {
        Hold last = core.permits.lastOf(name, Thread.currentThread());
        if (last == null) {
            throw new IllegalMonitorStateException(Thread.currentThread() + " has acquired no permits of " + name);
        }
        return last.fencingToken();
    }

    /**
     * Returns the number of the permit that the current thread acquired last: see {@link #withSlots}.
     *
     * @throws IllegalMonitorStateException the thread holds no permits
     * @throws IllegalStateException they have no number
     */
    public long slot() {
        Hold last = core.permits.lastOf(name, Thread.currentThread());
        if (last == null) {
            throw new IllegalMonitorStateException(Thread.currentThread() + " has acquired no permits of " + name);
        }
        return last.slot();
    }

    /** Asks the server for the number of free permits. It is 0 while an owner holds the name as an exclusive lock. */
    public int availablePermits() {
        return (int) Math.min(Integer.MAX_VALUE, LockInfo.of(core, name).available(limit));
    }

    /** Acquires all free permits, and returns their number. */
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

    /** Asks the server for the number of waiters. */
    public int getQueueLength() {
        return LockInfo.of(core, name).waiters;
    }

    /** Asks the server whether there are waiters. */
    public boolean hasQueuedThreads() {
        return getQueueLength() > 0;
    }

    /** Returns true: the queue is first come, first served. */
    public boolean isFair() {
        return true;
    }

    private Granting granting(int permits, Limits time) {
        core.checkOpen();
        positive(permits);
        if (isTooMany(permits)) {
            throw new IllegalArgumentException("permits must be 1 to the limit, which is " + limit + ", not " + permits);
        }
        if (one.mode == Request.Mode.SLOT && permits > 1) {
            throw new IllegalArgumentException("an acquisition with a number must take one permit, not " + permits);
        }
        return new Granting(core, one.of(permits), core.freshOwner(), false, false, time, null, listeners);
    }

    private boolean isTooMany(int permits) {
        return permits > limit;
    }

    private static void positive(int permits) {
        if (permits < 1) {
            throw new IllegalArgumentException("permits must be 1 or more, not " + permits);
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
