package dlock;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A lock in a Redis or Valkey server, or several locks that are acquired together. Any number of threads may share one
 * object.
 *
 * <p>As a {@link Lock} it belongs to the thread that locked it. It is reentrant, like
 * {@link java.util.concurrent.locks.ReentrantLock}. A waiting thread sends one command and then sleeps: the server
 * keeps the queue, first come, first served.
 *
 * <p>{@link #acquire} and {@link #acquireAsync} return a {@link Hold} instead, which belongs to no thread and is not
 * reentrant.
 *
 * <p>All objects that one client returns for a name are the same lock. Every method that sends a command may throw a
 * {@link DLockException}.
 */
public final class DLock implements Lock {
    private final Core core;
    private final Request request;
    private final List<Consumer<? super LockLostException>> listeners = new CopyOnWriteArrayList<>();
    /** Locks and unlocks for the calling thread. */
    private final ThreadLock mine;

    DLock(Core core, Request request) {
        this.core = core;
        this.request = request;
        this.mine = new ThreadLock(core, request, listeners);
        request.checkFor(core);
    }

    /** Returns the same lock with this lease. The default is the client's: renewed, 30 seconds. */
    public DLock withLease(Lease lease) {
        return new DLock(core, request.with(lease));
    }

    /**
     * Returns the same lock, whose grants and renewals this many replicas must acknowledge ({@code WAIT}). If fewer do,
     * a grant is released, and {@link TooFewReplicasException} is thrown.
     */
    public DLock withReplicas(int count, Duration timeout) {
        return new DLock(core, request.with(new Replicas(count, timeout)));
    }

    /**
     * Returns the same lock with this patience, instead of the client's: how long a wait without a limit looks for a
     * server. The time counts from the server's last answer.
     */
    public DLock withPatience(Duration patience) {
        return new DLock(core, request.with(patience));
    }

    /**
     * Returns the same lock, which is held for this time at most, from its grant, however often it is renewed. Then the
     * lock is lost, so that a program that hangs does not keep it forever. A longer lease is cut to this time
     * ({@code MAXHOLD}).
     */
    public DLock withMaxHold(Duration most) {
        return new DLock(core, request.with(request.time.atMost(most)));
    }

    /**
     * Returns the same lock, which stays for this time at least, from its grant. A release before that sets the lease
     * to what is left, instead of freeing the lock. If the program dies, the lock stays so long, too. A session cannot
     * keep such a lock.
     */
    public DLock withAtLeast(Duration least) {
        return new DLock(core, request.with(request.time.atLeast(least)));
    }

    /**
     * Runs the work at most once in each period, on all machines together: start it on all of them at about the same
     * time. The lock is the memory: it stays for nine tenths of the period, counted from the start of the run by the
     * server's clock. The next start may come early by the last tenth, so clocks may differ. A run counts even if the
     * work fails or the program dies. Does not wait. The lock of a run belongs to no thread.
     *
     * @param period 1 second or longer
     * @param work called with the hold, which is renewed meanwhile as its lease says
     * @return whether it ran here. False: it has run in this period, or runs now
     * @throws UnavailableException no server answered: nothing ran
     * @throws LockLostException the lock was lost while the work ran, so another run may have begun
     */
    public boolean once(Duration period, Consumer<? super Hold> work) throws InterruptedException {
        return Once.atAll(withAtLeast(Once.keptFor(period)), Objects.requireNonNull(work));
    }

    /**
     * Runs the work as {@link #once} does, but a run whose work fails does not count: the lock is released, and another
     * run may follow in the same period. If the program dies, one may follow after the lease.
     */
    public boolean onceUntilSuccess(Duration period, Consumer<? super Hold> work) throws InterruptedException {
        Duration stays = Once.keptFor(period);
        // Checks that the lock can stay so long.
        withAtLeast(stays);
        Duration lease = Duration.ofMillis(request.leaseMillis());
        DLock lock = withLease(request.lease.longer(stays)).withAtLeast(Duration.ZERO);
        return Once.inSuccess(lock, stays, lease, Objects.requireNonNull(work));
    }

    /** Returns the name, or the names of locks that are acquired together. */
    public List<String> names() {
        return request.names;
    }

    /**
     * Adds a listener. A thread of the client's executor calls it for each hold that is acquired through this object
     * from now on and then lost.
     *
     * @return this
     */
    public DLock onLost(Consumer<? super LockLostException> listener) {
        listeners.add(listener);
        return this;
    }

    // Lock

    /**
     * Acquires the lock. Waits as long as necessary.
     *
     * @throws DeadlockException waiting would never end
     * @throws LockLostException the thread has lost the lock and not unlocked it since
     */
    @Override
    public void lock() {
        mine.enter(request.unlimited(core));
    }

    /**
     * Acquires the lock unless the thread is interrupted. When the exception is thrown, the request has left the queue
     * and holds nothing. If the server does not answer within 50 ms, this happens later, in the background.
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        checkInterrupt();
        mine.enterInterruptibly(request.unlimited(core));
    }

    /**
     * Acquires the lock if it is free and has no waiters.
     *
     * @throws UnavailableException no server answered within 1 second
     */
    @Override
    public boolean tryLock() {
        return mine.enter(request.limited(core, 0));
    }

    /**
     * Acquires the lock as {@link #lockInterruptibly} does, but waits for this time at most.
     *
     * @return whether it was granted. False: a server has answered that it was not
     * @throws UnavailableException no server answered within this time
     */
    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        checkInterrupt();
        return mine.enterInterruptibly(request.limited(core, unit.toNanos(time)));
    }

    /**
     * Releases the lock, or one entry of it.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     * @throws LockLostException the lock was lost before
     * @throws UnavailableException no server answered. The client counts the entry as released
     */
    @Override
    public void unlock() {
        mine.leave();
    }

    /**
     * Runs the work between {@link #lock} and {@link #unlock}. The exception of the work wins: one of {@code unlock},
     * for example because the lock was lost, is attached to it ({@link Throwable#getSuppressed}).
     *
     * @throws LockLostException the work has returned, but the lock was lost while it ran
     */
    public void withLock(Runnable work) {
        Objects.requireNonNull(work);
        lock();
        Throwable thrown = null;
        try {
            work.run();
        } catch (Throwable e) {
            thrown = e;
            throw e;
        } finally {
            unlock(thrown);
        }
    }

    /** Runs the work as {@link #withLock(Runnable)} does, and returns what the work returns. */
    public <T> T withLock(Callable<T> work) throws Exception {
        Objects.requireNonNull(work);
        lock();
        Throwable thrown = null;
        try {
            return work.call();
        } catch (Throwable e) {
            thrown = e;
            throw e;
        } finally {
            unlock(thrown);
        }
    }

    private void unlock(Throwable thrown) {
        try {
            unlock();
        } catch (RuntimeException e) {
            if (thrown == null) {
                throw e;
            }
            thrown.addSuppressed(e);
        }
    }

    /** Throws {@link UnsupportedOperationException}: dlock has no conditions. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("dlock has no conditions");
    }

    // The current thread's hold

    /**
     * Returns the fencing token of the current thread's hold: greater than the token of every earlier grant. Pass
     * it to the resource that the lock protects, which refuses smaller tokens.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     */
    public long fencingToken() {
        return mine.entered().fencingToken();
    }

    /** Returns whether the current thread holds the lock, without asking the server. */
    public boolean isHeldByCurrentThread() {
        ThreadOwner.ThreadHold entered = core.currentOwner().hold(request);
        return entered != null && entered.isHeld();
    }

    /** Returns the number of times that the current thread has entered the lock. */
    public int getHoldCount() {
        ThreadOwner.ThreadHold entered = core.currentOwner().hold(request);
        return entered == null ? 0 : entered.entries;
    }

    /**
     * Returns the hold of the current thread, for example to extend it. Its {@code release} releases all entries, also
     * those of other locks of the thread that share a name.
     *
     * @throws IllegalMonitorStateException the thread has not locked it
     * @throws IllegalStateException the thread had locked a part of several locks before, so there are several holds
     */
    public Hold hold() {
        List<Hold> holds = mine.entered().holds();
        if (holds.size() > 1) {
            throw new IllegalStateException(request + " consists of several holds of this thread: " + holds);
        }
        return holds.get(0);
    }

    // Holds

    /** Acquires the lock as {@link #lockInterruptibly} does, for a hold that belongs to no thread. */
    public Hold acquire() throws InterruptedException {
        checkInterrupt();
        return freshGranting(request.unlimited(core)).awaitInterruptibly();
    }

    /**
     * Goes on with a hold that another client, perhaps of another program, has left by {@link Hold#handOver}, or when
     * it died. The hold is the same, with the same token; its lease is that of this lock.
     *
     * @param owner {@link Hold#owner} of the hold
     * @param fencingToken its {@link Hold#fencingToken}
     * @throws LockLostException the server has no such hold
     * @throws UnavailableException no server answered
     * @throws IllegalArgumentException a session keeps this lock, or it has several names
     */
    public Hold resume(String owner, long fencingToken) {
        core.checkOpen();
        return Hold.resumed(new HoldCommands(core, request, Objects.requireNonNull(owner, "owner"), fencingToken));
    }

    /** Acquires the lock, and waits for this time at most. Returns empty if it was not granted in time. */
    public Optional<Hold> tryAcquire(Duration wait) throws InterruptedException {
        checkInterrupt();
        return Optional.ofNullable(freshGranting(request.limited(core, wait)).awaitInterruptibly());
    }

    /**
     * Acquires the lock without a thread that waits. Cancel the future, or complete it in any other way, to leave the
     * queue. A grant that comes at this moment is released.
     */
    public CompletableFuture<Hold> acquireAsync() {
        return asynchronously(core, freshGranting(request.unlimited(core)), hold -> hold);
    }

    /** Does what {@link #acquireAsync} does, for this time at most. Empty: the lock was not granted in time. */
    public CompletableFuture<Optional<Hold>> tryAcquireAsync(Duration wait) {
        return asynchronously(core, freshGranting(request.limited(core, wait)), Optional::ofNullable);
    }

    // Queries

    /**
     * Asks the server whether the lock is held by any owner. Of several locks, one is enough. Of a lock for readers and
     * writers, asks for the holders of this side.
     */
    public boolean isLocked() {
        return request.names.stream().anyMatch(name -> LockInfo.of(core, name).isHeldIn(request.mode));
    }

    /** Asks the server for the number of waiters. Of several locks, returns the largest number. */
    public int getQueueLength() {
        return request.names.stream().mapToInt(name -> LockInfo.of(core, name).waiters).max().orElse(0);
    }

    static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    /**
     * Starts a request, and returns a future of its hold ({@code null}: not granted) in the form {@code as}. If the
     * user completes the future first, in any way, the request is abandoned.
     */
    static <T> CompletableFuture<T> asynchronously(Core core, Granting granting, Function<Hold, T> as) {
        CompletableFuture<T> result = new CompletableFuture<>();
        // Set before the outcome of the request completes the result: what completes the result otherwise is the user.
        AtomicBoolean hasOutcome = new AtomicBoolean();
        granting.start().whenComplete((hold, failed) -> core.tell(() -> {
            hasOutcome.set(true);
            if (failed != null) {
                result.completeExceptionally(Futures.cause(failed));
            } else if (!result.complete(as.apply(hold)) && hold != null) {
                hold.free();
            }
        }));
        result.whenComplete((done, failed) -> {
            if (!hasOutcome.get()) {
                granting.abandon();
            }
        });
        return result;
    }

    Granting freshGranting(Limits limit) {
        core.checkOpen();
        return new Granting(core, request, core.freshOwner(), false, false, limit, null, listeners);
    }

    @Override
    public String toString() {
        return "DLock " + request;
    }
}
