package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A lock, several locks or permits that were granted, until they are released or lost. Any thread may use it.
 *
 * <pre>{@code
 * try (Hold hold = lock.acquire()) {
 *     write(report, hold.fencingToken());
 * }
 * }</pre>
 *
 * <p>A hold is lost when the server says so, or when it can no longer be known to live: one lease after the last
 * renewal that succeeded was sent, by a clock that only goes forward.
 */
public final class Hold implements AutoCloseable {
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    /** The reply to a renewal that a cap has cut: it lasts for less than was asked. */
    static final long CUT = 0;
    /** How long a session tries a release that failed before, each time. */
    private static final long RELEASING_MILLIS = 1000;

    private enum State {
        HELD,
        RELEASED,
        LOST
    }

    private final Core core;
    private final Request request;
    private final HoldCommands commands;
    private final Binding binding;
    /** The named session, and what it knows of the hold; else {@code null}. */
    private final Session session;
    private final Bound bound;
    /** The thread to which the hold belongs, or {@code null}. */
    private final Thread thread;
    /** The number of a permit, or {@code null}. */
    private final Long slot;
    private final List<Consumer<? super LockLostException>> listeners = new ArrayList<>();

    // Guarded by this.
    private State state = State.HELD;
    private LockLostException lost;
    /** The lease that the next renewal asks for. */
    private long leaseNanos;
    private final Lengths lengths;
    private long until;
    /** It stays at least until then, even if it is released earlier. */
    private final long staysUntil;
    /** Whether it was granted soon after it was asked for. */
    private final boolean isFresh;
    private long permits;
    private Future<?> timer;

    /** {@code openings}: how often the named session had been opened before. */
    Hold(Core core, Request request, String owner, Acquisition.Grant grant, Thread thread, long openings) {
        this.core = core;
        this.request = request;
        this.commands = new HoldCommands(core, request, owner, grant.token);
        this.binding = new Binding(commands, grant.connection, this::isHeld, this::lose);
        this.thread = thread;
        this.permits = request.permits;
        this.slot = grant.slot;
        this.leaseNanos = TimeUnit.MILLISECONDS.toNanos(request.leaseMillis());
        this.lengths = new Lengths(leaseNanos);
        this.until = grant.sent + TimeUnit.MILLISECONDS.toNanos(request.firstLeaseMillis());
        // The grant came before now.
        this.staysUntil = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.time.leastMillis);
        this.session = request.lease.session;
        this.bound = session == null ? null : new Bound(session, commands, this::lose);
        this.isFresh = System.nanoTime() - grant.sent <= leaseNanos / 3;
        if (session != null && isFresh) {
            // The server refuses a lease beyond the cap. After a wait nobody knows when it began: confirm() asks.
            bound.capAt(until);
        }
        if (session != null) {
            session.join(bound, openings);
        }
    }

    /** Returns until when the lock is certainly held. */
    private long until() {
        return session == null ? until : bound.keeper().until(bound);
    }

    /** Starts to keep the hold alive. */
    Hold keep() {
        synchronized (this) {
            schedule(renewalNanos());
        }
        core.keep(this);
        if (!isHeld()) {
            // It was lost in the meantime.
            core.forget(this);
        }
        binding.watch();
        return this;
    }

    /**
     * Returns the fencing token: greater than the token of every earlier grant. Pass it to the resource that the lock
     * protects, which refuses smaller tokens. Readers and permits need another rule: see {@code docs/tokens.md}.
     */
    public long fencingToken() {
        return commands.token;
    }

    /**
     * Returns the number of the permit: see {@link DSemaphore#withSlots}. No other permit that is held has it.
     *
     * @throws IllegalStateException it has none
     */
    public long slot() {
        if (slot == null) {
            throw new IllegalStateException(request + " was not acquired with a slot");
        }
        return slot;
    }

    /** Returns the owner name. */
    public String owner() {
        return commands.owner;
    }

    /** Returns the name of the lock, or the names of locks that were acquired together, without those released. */
    public List<String> names() {
        return commands.names();
    }

    /** Returns the time for which the lock is certainly held, unless a client deletes it. Zero if lost or released. */
    public synchronized Duration remaining() {
        return Duration.ofNanos(state == State.HELD ? Math.max(0, until() - System.nanoTime()) : 0);
    }

    /** Returns whether the lock is held, without asking the server. */
    public boolean isHeld() {
        return !remaining().isZero();
    }

    /**
     * Adds a listener. A thread of the client's executor calls it once if the hold is lost, at once if it is lost
     * already. A released hold is not lost.
     *
     * @return this
     */
    public Hold onLost(Consumer<? super LockLostException> listener) {
        LockLostException already;
        synchronized (this) {
            already = lost;
            if (already == null) {
                listeners.add(listener);
            }
        }
        if (already != null) {
            core.tell(() -> listener.accept(already));
        }
        return this;
    }

    /**
     * Asks the server whether the lock is still held. Costs one command for each name.
     *
     * @throws UnavailableException no server answered
     */
    public boolean check() {
        if (!isHeld()) {
            return false;
        }
        return Futures.join(commands.check(core.patience()).thenApply(left -> left != null && isHeld()));
    }

    /**
     * Renews the hold with this lease, which becomes the hold's own. If a cap cuts it, {@link #remaining} counts to the
     * cap.
     *
     * @throws UnavailableException no server answered. It may have renewed the hold, or may do so later: {@link
     *     #remaining} counts with the shortest lease that the server may have
     * @throws LockLostException the hold was lost or released before
     * @throws TooFewReplicasException the lock is still held, but {@link #remaining} counts from the renewal before
     */
    public void extend(Duration lease) {
        long millis = session == null ? lease.toMillis() : Math.max(lease.toMillis(), session.leaseMillis());
        if (millis < 1 || request.isSession() && millis < 300) {
            throw new IllegalArgumentException("a lease of " + lease + " is too short");
        }
        if (!isHeld()) {
            throw lostOr("released");
        }
        long time = Math.max(millis, staysMillis());
        long sent = sends(TimeUnit.MILLISECONDS.toNanos(time));
        Core.Answer<Long> answer = Futures.join(commands.renew(time));
        Long renewed = answer.reply;
        if (renewed != null && renewed == CUT) {
            sent = System.nanoTime();
            renewed = Futures.join(commands.check(core.patience()));
        } else if (renewed != null) {
            renewed = time;
        }
        synchronized (this) {
            if (!answer.repeated) {
                lengths.answered(true);
            }
            if (renewed != null && state == State.HELD) {
                leaseNanos = TimeUnit.MILLISECONDS.toNanos(millis);
                heldUntil(sent, TimeUnit.MILLISECONDS.toNanos(renewed));
                schedule(renewalNanos());
                return;
            }
        }
        throw lose("the server has no such hold", null);
    }

    /** Notes a renewal that is about to be sent. If it is shorter, it may end the hold before its answer is read. */
    private synchronized long sends(long nanos) {
        long now = System.nanoTime();
        lengths.sends(nanos);
        if (until - now > nanos) {
            until = now + nanos;
            schedule(renewalNanos());
        }
        return now;
    }

    /**
     * Releases the lock, with all entries. Does nothing if it was released before.
     *
     * @throws LockLostException the hold was lost before
     * @throws UnavailableException no server answered. The client repeats the release in the background until the lease
     *     ends
     */
    public void release() {
        synchronized (this) {
            if (state == State.RELEASED) {
                return;
            }
        }
        if (!Futures.join(releaseAsync())) {
            throw lostOr("lost before its release");
        }
    }

    /** Releases the lock as {@link #release()} does, but does not report a lost hold. */
    @Override
    public void close() {
        synchronized (this) {
            if (state != State.HELD) {
                return;
            }
        }
        Futures.join(releaseAsync());
    }

    /** Returns for how long it has to stay, or 0. */
    private long staysMillis() {
        long left = request.time.leastMillis == 0 ? 0 : staysUntil - System.nanoTime();
        return left <= 0 ? 0 : TimeUnit.NANOSECONDS.toMillis(left) + 1;
    }

    /**
     * Leaves the lock to a lease of this time, which nobody renews.
     *
     * @return whether the server had it
     */
    CompletableFuture<Boolean> releaseIn(long millis) {
        synchronized (this) {
            if (state != State.HELD) {
                return CompletableFuture.completedFuture(false);
            }
            state = State.RELEASED;
            stopTimer();
        }
        core.forget(this);
        return commands.leaveTo(millis);
    }

    /**
     * Releases the lock without waiting for the reply.
     *
     * @return whether the lock was held until the release
     */
    public CompletableFuture<Boolean> releaseAsync() {
        long stays = staysMillis();
        return stays > 0 ? releaseIn(stays) : free();
    }

    /** Releases some of the names, and all if none is left then. Completes with whether they were held. */
    CompletableFuture<Boolean> releaseNames(List<String> some) {
        if (some.containsAll(commands.names())) {
            return isReleased() ? CompletableFuture.completedFuture(true) : releaseAsync();
        }
        if (!isHeld()) {
            return CompletableFuture.completedFuture(isReleased());
        }
        if (some.isEmpty()) {
            return CompletableFuture.completedFuture(true);
        }
        commands.drop(some);
        long stays = staysMillis();
        if (stays > 0) {
            return commands.leaveTo(some, stays);
        }
        Deadline lapse = lapse();
        CompletableFuture<Boolean> released = commands.releaseAll(some, lapse);
        released.whenComplete((ok, failed) -> {
            if (failed != null && session != null) {
                // The session would keep them.
                bound.keeper().owe(() -> commands.releaseAll(some, Deadline.afterMillis(RELEASING_MILLIS)));
            }
        });
        return patiently(released);
    }

    /** Releases it, and has the session repeat that if no server answers. */
    private void releaseOwing() {
        Supplier<CompletableFuture<?>> release = () -> commands.releaseAll(Deadline.afterMillis(RELEASING_MILLIS));
        release.get().whenComplete((ok, failed) -> {
            if (failed != null) {
                bound.keeper().owe(release);
            }
        });
    }

    private synchronized boolean isReleased() {
        return state == State.RELEASED;
    }

    /** Whether it was granted for one name. */
    boolean isOfOneName() {
        return request.names.size() == 1;
    }

    /** The same, also for a lock that has to stay. */
    CompletableFuture<Boolean> free() {
        boolean wasHeld;
        synchronized (this) {
            wasHeld = state == State.HELD;
            if (state == State.RELEASED) {
                return CompletableFuture.completedFuture(false);
            }
            if (wasHeld) {
                state = State.RELEASED;
            }
            stopTimer();
        }
        core.forget(this);
        DedicatedConnection own = binding.end();
        Deadline lapse = lapse();
        if (session != null) {
            bound.keeper().leave(bound);
        }
        CompletableFuture<Boolean> released = commands.releaseAll(lapse).thenApply(all -> all && wasHeld);
        released.whenComplete((ok, failed) -> {
            if (failed != null && session != null) {
                // The session would keep it.
                bound.keeper().owe(() -> commands.releaseAll(Deadline.afterMillis(RELEASING_MILLIS)));
            }
            if (own != null && failed == null) {
                own.giveBack();
            } else if (own != null) {
                // The end of the connection releases a session.
                own.leave();
            }
            binding.leaveOthers();
        });
        return patiently(released);
    }

    /** The caller waits no longer than the patience. The repeats continue until the lease ends. */
    private CompletableFuture<Boolean> patiently(CompletableFuture<Boolean> released) {
        return released.copy().orTimeout(core.patienceMillis, TimeUnit.MILLISECONDS).exceptionally(failed -> {
            Throwable reason = Futures.cause(failed);
            if (reason instanceof TimeoutException) {
                throw new UnavailableException("no answer to the release of " + request, reason);
            }
            throw Futures.rethrown(reason);
        });
    }

    /** Returns a time at which the hold has certainly lapsed on the server. */
    private synchronized Deadline lapse() {
        return Deadline.afterNanos(Math.max(0, until() - System.nanoTime()) + TimeUnit.SECONDS.toNanos(1));
    }

    /** Releases some of the permits, but not all. */
    CompletableFuture<Boolean> releasePermits(long some) {
        synchronized (this) {
            permits -= some;
        }
        return commands.releaseSome("PERMITS", some).thenApply(reply -> reply != null);
    }

    synchronized long permits() {
        return permits;
    }

    Thread thread() {
        return thread;
    }

    /** Releases one entry, but not the last. */
    CompletableFuture<Void> leaveOnce() {
        return commands.releaseSome().thenAccept(reply -> {
            if (reply == null || reply != 0) {
                throw lose("it was lost before its release", null);
            }
        });
    }

    /** Enters once more. Fails with {@link LockLostException} if the server has no such hold. */
    CompletableFuture<Void> enter(Request again, Deadline giveUp) {
        long sent = System.nanoTime();
        return commands.enter(again, giveUp).thenCompose(reply -> {
            if (reply != null && reply == commands.token) {
                return entered(sent, TimeUnit.MILLISECONDS.toNanos(again.leaseMillis()));
            }
            CompletableFuture<Void> undone =
                    reply == null ? CompletableFuture.completedFuture(null) : commands.releaseOther(reply);
            LockLostException why = lose("it was lost before it was entered again", null);
            return undone.thenRun(() -> {
                throw why;
            });
        });
    }

    /**
     * Re-entry keeps the longer of the two leases. A cap may have cut it: of a lease that nobody renews, the server is
     * asked how much is left.
     */
    private CompletableFuture<Void> entered(long sent, long nanos) {
        synchronized (this) {
            if (state == State.HELD) {
                leaseNanos = Math.max(leaseNanos, nanos);
                lengths.raised(nanos);
            }
            // Replicas have not acknowledged the longer lease.
            if (request.lease.kind != Lease.Kind.FIXED || request.replicas != null || until - sent >= nanos) {
                return CompletableFuture.completedFuture(null);
            }
        }
        return looked(() -> commands.check(core.patience())).thenApply(left -> null);
    }

    /**
     * Asks the server for the end of the lease, if the hold may have been granted long before the reply came.
     *
     * @return whether it is still held. Fails with {@link UnavailableException} at that time
     */
    CompletableFuture<Boolean> confirm(Deadline giveUp) {
        if (session != null) {
            IllegalStateException closed = session.closed();
            if (closed != null) {
                return CompletableFuture.failedFuture(closed);
            }
            return isFresh
                    ? CompletableFuture.completedFuture(isHeld())
                    : session.learnCap(bound, giveUp).thenApply(known -> {
                        if (!known) {
                            lose("the server has no such hold", null);
                        }
                        return isHeld();
                    });
        }
        synchronized (this) {
            if (until - System.nanoTime() >= leaseNanos - leaseNanos / 3) {
                return CompletableFuture.completedFuture(true);
            }
        }
        return looked(() -> commands.check(giveUp)).thenApply(held -> held != null);
    }

    LockLostException lostOr(String otherwise) {
        synchronized (this) {
            if (lost != null) {
                return new LockLostException(lost.getMessage(), lost);
            }
        }
        return new LockLostException(request + ": " + otherwise, null);
    }

    // Keeping it alive

    /** Returns the lease to renew by. The caller holds the monitor. */
    private long shortest() {
        return Math.min(leaseNanos, lengths.sure());
    }

    private long renewalNanos() {
        return request.lease.kind == Lease.Kind.FIXED ? Long.MAX_VALUE : shortest() / 3;
    }

    /** Schedules {@link #tick} after this time, or at the end of the lease. The caller holds the monitor. */
    private void schedule(long nanos) {
        stopTimer();
        if (state == State.HELD) {
            timer = core.schedule(this::tick, Math.min(nanos, until() - System.nanoTime()));
        }
    }

    private void stopTimer() {
        if (timer != null) {
            timer.cancel(false);
            timer = null;
        }
    }

    private void tick() {
        boolean lapsed;
        synchronized (this) {
            if (state != State.HELD) {
                return;
            }
            lapsed = until() - System.nanoTime() <= 0;
            if (!lapsed) {
                schedule(Long.MAX_VALUE);
            }
        }
        if (lapsed) {
            lose(session == null ? "its lease ended" : "its session was not confirmed in time, or its cap was reached", null);
        } else if (thread != null && !thread.isAlive()) {
            // The thread ended without unlocking.
            releaseAsync();
        } else if (session != null) {
            synchronized (this) {
                schedule(renewalNanos());
            }
        } else if (request.lease.kind != Lease.Kind.FIXED) {
            CompletableFuture<Long> renewal =
                    request.isSession() && request.replicas == null ? look() : renewed();
            renewal.whenComplete((ok, failed) -> {
                Throwable reason = Futures.cause(failed);
                boolean isForNow = Unanswered.mayRepeat(reason) || Unanswered.writesNothing(reason);
                if (failed != null && !isForNow && !(reason instanceof TooFewReplicasException)) {
                    lose("it cannot be renewed", reason);
                    return;
                }
                synchronized (this) {
                    schedule(failed == null ? renewalNanos() : Math.min(shortest() / 30, LONGEST_PAUSE_NANOS));
                }
            });
        }
    }

    private CompletableFuture<Long> renewed() {
        long millis;
        synchronized (this) {
            millis = Math.max(TimeUnit.NANOSECONDS.toMillis(leaseNanos), staysMillis());
        }
        long nanos = TimeUnit.MILLISECONDS.toNanos(millis);
        long sent = sends(nanos);
        return commands.renew(binding.connection(), millis).whenComplete(this::answered).thenCompose(ok -> {
            if (ok == null) {
                lose("the server has no such hold", null);
            } else if (ok == CUT) {
                return looked(() -> commands.check(core.patience()));
            } else {
                heldUntil(sent, nanos);
            }
            return CompletableFuture.completedFuture(ok);
        });
    }

    /** Notes what became of a renewal that was sent once. */
    private synchronized void answered(Long ok, Throwable failed) {
        Throwable reason = Futures.cause(failed);
        if (failed == null || reason instanceof TooFewReplicasException
                || reason instanceof ServerException && request.names.size() == 1) {
            lengths.answered(failed == null);
        }
    }

    /** Checks the hold. The server renews a session, so the client only checks that the server and the hold exist. */
    private CompletableFuture<Long> look() {
        return looked(() -> commands.check(binding.connection()));
    }

    private CompletableFuture<Long> looked(Supplier<CompletableFuture<Long>> check) {
        long sent = System.nanoTime();
        return check.get().thenApply(left -> {
            if (left == null) {
                lose("the server has no such hold", null);
            } else {
                heldUntil(sent, TimeUnit.MILLISECONDS.toNanos(left));
            }
            return left;
        });
    }

    private synchronized void heldUntil(long sent, long nanos) {
        if (state == State.HELD) {
            until = sent + Math.min(nanos, lengths.sure());
        }
    }

    /** Marks the hold as lost, unless it is released or lost already. Returns the exception to throw. */
    LockLostException lose(String why, Throwable cause) {
        List<Consumer<? super LockLostException>> told;
        LockLostException loss;
        synchronized (this) {
            if (state != State.HELD) {
                return lostOr(state == State.RELEASED ? "released" : why);
            }
            state = State.LOST;
            loss = new LockLostException(request + " was lost: " + why, cause);
            lost = loss;
            stopTimer();
            told = new ArrayList<>(listeners);
            listeners.clear();
        }
        core.forget(this);
        if (session != null) {
            bound.keeper().leave(bound);
        }
        DedicatedConnection own = binding.end();
        if (own != null) {
            own.leave();
        }
        binding.leaveOthers();
        if (session != null && bound.keeper().isOpen()) {
            // The server may still have it, and the session would keep it.
            releaseOwing();
        } else if (commands.names().size() > 1) {
            // Releases the other locks of the set.
            commands.releaseAll(lapse());
        }
        told.forEach(listener -> core.tell(() -> listener.accept(loss)));
        return loss;
    }

    @Override
    public String toString() {
        return "Hold of " + request + " by " + commands.owner + ", token " + commands.token;
    }
}
