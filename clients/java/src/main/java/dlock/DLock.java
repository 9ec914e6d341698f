package dlock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;

/**
 * A lock in a Redis or Valkey server, or several that are taken together.
 *
 * <p>As a {@link Lock} it belongs to the thread that locked it, which may lock it again and unlocks it as often, as with
 * {@link java.util.concurrent.locks.ReentrantLock}. Waiting is one command: the server keeps the queue, first come,
 * first served.
 *
 * <p>{@link #acquire} and {@link #acquireAsync} give a {@link Hold} instead, which belongs to no thread and is not
 * reentrant.
 *
 * <p>Objects of the same client and name are the same lock. All methods may throw a {@link DLockException}.
 */
public final class DLock implements Lock {
    private final Core core;
    private final Request request;
    private final List<Consumer<? super LockLostException>> listeners = new CopyOnWriteArrayList<>();

    DLock(Core core, Request request) {
        this.core = core;
        this.request = request;
        if (request.isSession() && !core.backend.hasSessions()) {
            throw new IllegalArgumentException("a driver has no connections that a session could be bound to");
        }
    }

    /** Returns the same lock, taken with that lease. It is renewed, for 30 seconds, unless the client says otherwise. */
    public DLock withLease(Lease lease) {
        return new DLock(core, Request.lock(request.names, request.mode, lease));
    }

    /** Returns the names: one, or several that are taken together. */
    public List<String> names() {
        return request.names;
    }

    /**
     * Has a listener told of each hold that was taken through this object from now on, and is lost. It is called by a
     * thread of the client's executor.
     *
     * @return this
     */
    public DLock onLost(Consumer<? super LockLostException> listener) {
        listeners.add(listener);
        return this;
    }

    // Lock

    /**
     * Waits for the lock, however long it takes.
     *
     * @throws DeadlockException waiting would never end
     * @throws LockLostException the thread has lost the lock, and has not unlocked it since
     */
    @Override
    public void lock() {
        if (!again()) {
            keep(granting(Deadline.NEVER).await());
        }
    }

    /**
     * Waits for the lock, unless the thread is interrupted. By the time that the exception is thrown the thread has left
     * the queue and holds nothing; if the server does not answer, at most 3 seconds pass before that.
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        checkInterrupt();
        if (!again()) {
            keep(granting(Deadline.NEVER).awaitInterruptibly());
        }
    }

    /** Takes the lock if it is free and nobody waits for it. */
    @Override
    public boolean tryLock() {
        return again() || keep(granting(Deadline.afterMillis(0)).await());
    }

    /** Waits for the lock at most that long, in which it is as {@link #lockInterruptibly}. */
    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        checkInterrupt();
        return again() || keep(granting(Deadline.afterNanos(unit.toNanos(time))).awaitInterruptibly());
    }

    /**
     * Releases the lock, or one entry of it.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     * @throws LockLostException the lock was lost before
     * @throws UnavailableException no server answered. The entry is given up all the same
     */
    @Override
    public void unlock() {
        ThreadOwner me = core.currentOwner();
        ThreadOwner.ThreadHold mine = mine();
        if (--mine.entries == 0) {
            me.holdsNoLonger(request);
            mine.hold.release();
        } else if (!mine.hold.isHeld()) {
            throw mine.hold.lostOr("lost before its release");
        } else if (isCounted(mine)) {
            certainly(mine, mine.hold.leaveOnce());
        }
    }

    /** Unsupported: a server has no conditions. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("dlock has no conditions");
    }

    // What the thread has

    /**
     * Returns the fencing token of the current thread's hold: greater than that of every earlier grant. Give it to
     * whatever the lock protects, and let that refuse smaller ones.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     */
    public long fencingToken() {
        return mine().hold.fencingToken();
    }

    /** Returns whether the current thread holds the lock, as far as is known without asking the server. */
    public boolean isHeldByCurrentThread() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        return mine != null && mine.hold.isHeld();
    }

    /** Returns how often the current thread has locked the lock and not unlocked it. */
    public int getHoldCount() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        return mine == null ? 0 : mine.entries;
    }

    /**
     * Returns the hold of the current thread, to extend it, or to look after it from another thread. Its {@code release}
     * unlocks all entries.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     */
    public Hold hold() {
        return mine().hold;
    }

    // Holds

    /** Waits for the lock as {@link #lockInterruptibly}, for a hold that belongs to no thread. */
    public Hold acquire() throws InterruptedException {
        checkInterrupt();
        return freshGranting(Deadline.NEVER).awaitInterruptibly();
    }

    /** Waits for the lock at most that long; not at all if the time is zero. Empty: it was not granted in time. */
    public Optional<Hold> tryAcquire(Duration wait) throws InterruptedException {
        checkInterrupt();
        return Optional.ofNullable(freshGranting(after(wait)).awaitInterruptibly());
    }

    /**
     * Waits for the lock without a thread. If the future is cancelled, or completed in any other way, before the lock is
     * granted, the request leaves the queue.
     */
    public CompletableFuture<Hold> acquireAsync() {
        return asynchronously(core, freshGranting(Deadline.NEVER));
    }

    /** The same, at most that long. Empty: it was not granted in time. */
    public CompletableFuture<Optional<Hold>> tryAcquireAsync(Duration wait) {
        Granting granting = freshGranting(after(wait));
        CompletableFuture<Hold> hold = asynchronously(core, granting);
        CompletableFuture<Optional<Hold>> result = hold.thenApply(Optional::ofNullable);
        result.whenComplete((done, failed) -> {
            if (failed != null) {
                hold.cancel(false);
            }
        });
        return result;
    }

    // What the server says

    /** Asks the server whether anybody holds the lock; of several, any of them. */
    public boolean isLocked() {
        return request.names.stream().anyMatch(name -> LockInfo.of(core, name).holders > 0);
    }

    /** Asks the server how many requests wait for the lock; of several, the most of any of them. */
    public int getQueueLength() {
        return request.names.stream().mapToInt(name -> LockInfo.of(core, name).waiters).max().orElse(0);
    }

    static Deadline after(Duration wait) {
        try {
            return Deadline.afterNanos(wait.toNanos());
        } catch (ArithmeticException e) {
            return Deadline.NEVER;
        }
    }

    static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    static CompletableFuture<Hold> asynchronously(Core core, Granting granting) {
        CompletableFuture<Hold> result = new CompletableFuture<>();
        granting.start().whenComplete((hold, failed) -> core.tell(() -> {
            if (failed != null) {
                result.completeExceptionally(Futures.cause(failed));
            } else if (!result.complete(hold) && hold != null) {
                hold.releaseAsync();
            }
        }));
        result.whenComplete((hold, failed) -> {
            if (failed != null) {
                granting.abandon();
            }
        });
        return result;
    }

    private Granting granting(Deadline end) {
        core.checkOpen();
        return new Granting(core, request, core.currentOwner().name, end, Thread.currentThread(), listeners);
    }

    private Granting freshGranting(Deadline end) {
        core.checkOpen();
        return new Granting(core, request, core.freshOwner(), end, null, listeners);
    }

    private boolean keep(Hold hold) {
        if (hold == null) {
            return false;
        }
        core.currentOwner().holds(request, new ThreadOwner.ThreadHold(hold));
        return true;
    }

    private ThreadOwner.ThreadHold mine() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        if (mine == null) {
            throw new IllegalMonitorStateException(request + " is not locked by " + Thread.currentThread());
        }
        return mine;
    }

    /** Enters once more, if the thread is in already. */
    private boolean again() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        if (mine == null) {
            return false;
        }
        if (!mine.hold.isHeld()) {
            throw mine.hold.lostOr("lost before it was entered again");
        }
        if (isCounted(mine)) {
            certainly(mine, mine.hold.enter(request));
        }
        mine.entries++;
        return true;
    }

    /** Whether the server counts the entries. Of several locks it does not. */
    private boolean isCounted(ThreadOwner.ThreadHold mine) {
        return request.names.size() == 1 && !mine.uncertain;
    }

    /**
     * Waits for a change of the server's count. If its outcome is unknown, entries are counted here only from then on:
     * the last unlock releases all that the server counts.
     */
    private static void certainly(ThreadOwner.ThreadHold mine, CompletableFuture<Void> change) {
        try {
            Hold.join(change);
        } catch (UnavailableException e) {
            mine.uncertain = true;
            throw e;
        }
    }

    @Override
    public String toString() {
        return "DLock " + request;
    }
}
