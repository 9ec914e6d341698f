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
    /** Until when it is certain and when it is renewed; {@code null}: a named session keeps it. */
    private final Heartbeat beat;
    /** The number of the last command that concerns its lease. */
    private int number;
    /** Whether the last renewal had no answer, so that the next one is sent on another connection. */
    private boolean isOnOther;
    /** It stays at least until then, even if it is released earlier. */
    private final long staysUntil;
    private long permits;
    private Future<?> timer;

    /**
     * {@code since}: when the command was sent that set this lease. {@code isAskedTwice}: an earlier copy of the
     * acquisition may still be executed. {@code openings}: how often the named session had been opened before.
     */
    Hold(
            HoldCommands commands,
            Acquisition.Grant grant,
            long since,
            boolean isAskedTwice,
            Thread thread,
            long openings,
            long lease) {
        this.core = commands.core;
        this.request = commands.request;
        this.commands = commands;
        this.binding = new Binding(commands, grant.connection, this::isHeld, this::lose);
        this.thread = thread;
        this.permits = request.permits;
        this.slot = grant.slot;
        this.leaseNanos = TimeUnit.MILLISECONDS.toNanos(request.leaseMillis());
        long now = System.nanoTime();
        // The grant came before now.
        this.staysUntil = now + TimeUnit.MILLISECONDS.toNanos(request.time.leastMillis);
        this.session = request.lease.session;
        boolean renews = request.lease.kind != Lease.Kind.FIXED;
        this.beat = session != null ? null
                : new Heartbeat(new Validity(lease, since, isAskedTwice, now), leaseNanos, since, renews, now);
        this.bound = session == null ? null : new Bound(session, commands, this::lose);
        if (session != null) {
            if (now - since <= lease / 3) {
                // The server refuses a lease beyond the cap. After a wait nobody knows when it began.
                bound.capAt(since + lease);
            }
            session.join(bound, openings);
        }
    }

    /** Returns until when the lock is certainly held. */
    private long until() {
        return session == null ? beat.validity().until() : bound.keeper().until(bound);
    }

    /** Starts to keep the hold alive. */
    Hold keep() {
        synchronized (this) {
            schedule();
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
        Long renewed = Futures.join(
                core.repeat(() -> copy(time, () -> commands.renew(null, time)), core.patience())).reply;
        if (renewed != null && renewed == CUT) {
            renewed = Futures.join(looked(() -> commands.check(core.patience())));
        }
        if (renewed == null || !isHeld()) {
            throw lose("the server has no such hold", null);
        }
        synchronized (this) {
            leaseNanos = TimeUnit.MILLISECONDS.toNanos(millis);
            schedule();
        }
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
            if (state != State.HELD || session != null) {
                return CompletableFuture.completedFuture(null);
            }
            leaseNanos = Math.max(leaseNanos, nanos);
            beat.validity().raised(nanos);
            // Replicas have not acknowledged the longer lease.
            if (request.lease.kind != Lease.Kind.FIXED || request.replicas != null || until() - sent >= nanos) {
                return CompletableFuture.completedFuture(null);
            }
        }
        return looked(() -> commands.check(core.patience())).thenApply(left -> null);
    }

    /** Asks for the cap, which the session has to know. Completes with whether the server has the hold. */
    CompletableFuture<Boolean> learnCap(Deadline giveUp) {
        return bound.keeper().learnCap(bound, giveUp);
    }

    /** When it was asked at this time, the server said how long it lasts. */
    synchronized void isLeft(long asked, long left) {
        number++;
        beat.validity().asked(number, asked);
        beat.left(number, left, System.nanoTime());
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

    /** Schedules {@link #tick} for what is due next. The caller holds the monitor. */
    private void schedule() {
        stopTimer();
        if (state == State.HELD) {
            long left = until() - System.nanoTime();
            long due = session != null ? leaseNanos / 3
                    : beat.next() == Heartbeat.Next.NOTHING ? left
                    : beat.at() - System.nanoTime();
            timer = core.schedule(this::tick, Math.min(due, left));
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
        Heartbeat.Next due = Heartbeat.Next.NOTHING;
        synchronized (this) {
            if (state != State.HELD) {
                return;
            }
            long now = System.nanoTime();
            lapsed = until() - now <= 0;
            if (session == null && beat.at() - now <= 0) {
                due = beat.next();
            }
        }
        if (lapsed) {
            lose(session == null ? "its lease ended" : "its session was not confirmed in time, or its cap was reached", null);
            return;
        }
        if (thread != null && request.lease.kind != Lease.Kind.FIXED && !thread.isAlive()) {
            // The thread ended without unlocking.
            releaseAsync();
            return;
        }
        switch (due) {
            case RENEW:
                keepAlive();
                break;
            case GIVE_UP:
                cut();
                break;
            case CHECK:
                checkCap();
                break;
            default:
        }
        synchronized (this) {
            schedule();
        }
    }

    /** Renews the hold. The server renews a session, so the client only checks that the server and the hold exist. */
    private void keepAlive() {
        long millis;
        boolean isOther;
        synchronized (this) {
            millis = Math.max(TimeUnit.NANOSECONDS.toMillis(leaseNanos), staysMillis());
            isOther = isOnOther;
        }
        DedicatedConnection own = isOther ? null : binding.connection();
        if (request.isSession() && request.replicas == null) {
            look(own);
            return;
        }
        CompletableFuture<Long> renewal;
        int copy = sends(millis);
        renewal = own != null ? commands.renew(own, millis) : commands.renewed(isOther, millis);
        answers(copy, renewal).whenComplete((ok, failed) -> {
            if (failed == null && ok == null) {
                lose("the server has no such hold", null);
            } else if (failed != null) {
                loseUnlessForNow(Futures.cause(failed));
            }
        });
    }

    private void look(DedicatedConnection own) {
        long sent;
        synchronized (this) {
            sent = System.nanoTime();
            beat.looks(sent);
        }
        looked(() -> commands.check(own)).whenComplete((left, failed) -> {
            synchronized (this) {
                if (failed == null) {
                    isOnOther = false;
                    beat.looked(sent, System.nanoTime());
                    schedule();
                }
            }
            if (failed != null) {
                cut();
                loseUnlessForNow(Futures.cause(failed));
            }
        });
    }

    private void checkCap() {
        looked(() -> commands.check(core.patience())).whenComplete((left, failed) -> {
            if (failed != null) {
                cut();
            }
        });
    }

    private void loseUnlessForNow(Throwable reason) {
        boolean isForNow = Unanswered.mayRepeat(reason) || Unanswered.writesNothing(reason)
                || reason instanceof UnavailableException || reason instanceof TooFewReplicasException;
        if (!isForNow) {
            lose("it cannot be renewed", reason);
        }
    }

    /** What was sent last has no answer. */
    private synchronized void cut() {
        if (state == State.HELD) {
            isOnOther = true;
            beat.cut(System.nanoTime());
            schedule();
        }
    }

    /** Notes a renewal that is about to be sent. If it is shorter, it may end the hold before its answer is read. */
    private synchronized int sends(long millis) {
        number++;
        if (session == null) {
            beat.sent(number, TimeUnit.MILLISECONDS.toNanos(millis), System.nanoTime());
            schedule();
        }
        return number;
    }

    /** Sends one copy of a renewal, after it is noted. */
    private CompletableFuture<Long> copy(long millis, Supplier<CompletableFuture<Long>> renewal) {
        int copy = sends(millis);
        return answers(copy, renewal.get());
    }

    private CompletableFuture<Long> answers(int copy, CompletableFuture<Long> renewal) {
        return renewal.whenComplete((ok, failed) -> answered(copy, ok, Futures.cause(failed)));
    }

    /** Notes what became of a renewal that was sent once. */
    private synchronized void answered(int copy, Long ok, Throwable reason) {
        if (session != null || state != State.HELD || reason == null && ok == null) {
            return;
        }
        long now = System.nanoTime();
        if (reason == null && ok == CUT) {
            beat.capped(copy, now);
        } else if (reason == null) {
            isOnOther = false;
            beat.ok(copy, now);
        } else if (reason instanceof TooFewReplicasException
                || reason instanceof ServerException && request.names.size() == 1) {
            beat.refused(copy, now);
        } else if (copy == number) {
            isOnOther = true;
            beat.cut(now);
        }
        schedule();
    }

    /** Asks the server how long it lasts. Completes with {@code null}, and the hold is lost, if the server has it not. */
    private CompletableFuture<Long> looked(Supplier<CompletableFuture<Long>> check) {
        int asked;
        synchronized (this) {
            asked = ++number;
            if (session == null) {
                beat.asked(asked, System.nanoTime());
            }
        }
        return check.get().thenApply(left -> {
            if (left == null) {
                lose("the server has no such hold", null);
                return null;
            }
            synchronized (this) {
                if (session == null && state == State.HELD) {
                    beat.left(asked, TimeUnit.MILLISECONDS.toNanos(left), System.nanoTime());
                    schedule();
                }
            }
            return left;
        });
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
