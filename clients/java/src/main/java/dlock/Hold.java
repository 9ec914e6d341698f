package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

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
    private enum State {
        HELD,
        RELEASED,
        LOST
    }

    private final Core core;
    private final Request request;
    private final HoldCommands commands;
    private final BoundConnection binding;
    /** The named session, and what it knows of the hold; else {@code null}. */
    private final Session session;
    private final Bound bound;
    private final Keeping keeping;
    /** The thread to which the hold belongs, or {@code null}. */
    private final Thread thread;
    /** The number of a permit, or {@code null}. */
    private final Long slot;
    /** Tells the listeners of the client. */
    final HoldReport report;
    private final List<Consumer<? super LockLostException>> listeners = new ArrayList<>();
    /** When the command was sent from which the first lease of the hold counts. */
    private final long since;
    /** The server keeps the lock at least until this time, even if it is released earlier. */
    private final long staysUntil;

    // Guarded by this.
    private State state = State.HELD;
    private LockLostException lost;
    private long permits;
    private boolean isEnteredLate;
    private boolean isLeftLate;
    /** The last release of some of the permits. */
    private CompletableFuture<?> leaving = CompletableFuture.completedFuture(null);

    /**
     * {@code validity}: until when the hold is certain, counted from {@code since}; {@code null}: a named session keeps
     * it. {@code openings}: how often that session had been opened when the lock was requested.
     */
    Hold(HoldCommands commands, Acquisition.Grant grant, Validity validity, long since, Thread thread, long openings) {
        this.core = commands.core;
        this.request = commands.request;
        this.commands = commands;
        this.report = new HoldReport(core, request.names);
        this.binding = new BoundConnection(commands, grant.connection, this::bind, this::isLive, this::lose);
        this.thread = thread;
        this.since = since;
        this.permits = request.permits;
        this.slot = grant.slot;
        long now = System.nanoTime();
        // The time counts from now, which is late enough: the grant came before.
        this.staysUntil = now + TimeUnit.MILLISECONDS.toNanos(request.time.leastMillis);
        this.session = request.lease.session;
        this.bound = session == null ? null : new Bound(session, commands, this::lose);
        this.keeping = new Keeping(this, commands, bound, validity, since, binding::connection);
        if (session != null) {
            session.join(bound, openings);
        }
    }

    /** Goes on with a hold that another client has handed over. */
    static Hold resumed(HoldCommands commands) {
        Request request = commands.request;
        if (!hasOneLease(request)) {
            throw new IllegalArgumentException(
                    request + ": a hold that is resumed must have a lease, not a session, and one name");
        }
        Core core = commands.core;
        long millis = request.leaseMillis();
        long sent = System.nanoTime();
        Core.Answer<Long> answer = Futures.join(core.repeat(() -> commands.renew(null, millis), core.patience()));
        long asked = System.nanoTime();
        Long left = answer.reply != null && answer.reply == Keeping.CUT
                ? Futures.join(commands.check(core.patience())) : answer.reply;
        if (left == null) {
            throw new LockLostException(request + ": the server has no such hold", null);
        }
        long now = System.nanoTime();
        Validity validity = new Validity(TimeUnit.MILLISECONDS.toNanos(millis), sent, answer.repeated, now);
        if (answer.reply == Keeping.CUT) {
            validity.endsBy(asked + TimeUnit.MILLISECONDS.toNanos(left) - Validity.GRAIN, now);
        }
        Hold hold = new Hold(commands, new Acquisition.Grant(commands.token, null, null), validity, sent, null, 0);
        hold.report.held();
        return hold.keep();
    }

    private static boolean hasOneLease(Request request) {
        return !request.isSession() && request.lease.session == null && request.names.size() == 1;
    }

    /** Starts to keep the hold alive. */
    Hold keep() {
        if (session != null) {
            // The server refuses a lease beyond the cap.
            long lease = TimeUnit.MILLISECONDS.toNanos(request.firstLeaseMillis());
            bound.keeper().capNotBefore(bound, since + lease - Validity.GRAIN);
        }
        keeping.start();
        core.keep(this);
        core.releases.begins(commands);
        if (!isLive()) {
            // The lock was lost in the meantime.
            core.forget(this);
        }
        binding.watch();
        return this;
    }

    /**
     * Ends a hold whose session does not keep it. The session on its node may have ended while the grant was on its
     * way: then nothing else reports the loss.
     */
    void endUnlessKept() {
        Session keeper = session == null ? null : bound.keeper();
        // A hold that moves to another node has its next session before it leaves the last one: the keeper changes.
        if (keeper != null && !keeper.keeps(bound) && keeper == bound.keeper()) {
            lose("its session had ended before the lock was granted", null, true);
        }
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
     * @throws IllegalStateException the permit has no number
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

    /**
     * Returns the time for which the lock is certainly held, unless a client deletes it. Zero if lost or released. With
     * {@link Lease#session}, also zero while its connection has ended and the lock is not yet bound to another one.
     */
    public Duration remaining() {
        boolean isUnbound = request.isSession() && binding.connection() == null;
        return isUnbound ? Duration.ZERO : left();
    }

    private synchronized Duration left() {
        return Duration.ofNanos(state == State.HELD ? Math.max(0, keeping.until() - System.nanoTime()) : 0);
    }

    /** Returns whether the hold is neither released nor known to be lost. It may be bound to no connection. */
    boolean isLive() {
        return !left().isZero();
    }

    private CompletableFuture<Long> bind(DedicatedConnection at) {
        return keeping.bind(at);
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
        if (!isLive()) {
            return false;
        }
        Long left = Futures.join(commands.check(core.patience()));
        if (left == null) {
            lose("the server has no such hold", null);
        }
        return left != null && isLive();
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
        if (millis < (request.isSession() ? Lease.SHORTEST_SESSION_MILLIS : Lease.SHORTEST_MILLIS)) {
            throw new IllegalArgumentException("a lease of " + lease + " is too short: nothing would be certain of it");
        }
        if (!isLive()) {
            throw lostOr("released");
        }
        long time = Math.max(millis, staysMillis());
        Long renewed = Futures.join(
                core.repeat(() -> keeping.copy(time, () -> commands.renew(null, time)), core.patience())).reply;
        if (renewed != null && renewed == Keeping.CUT) {
            renewed = Futures.join(keeping.looked(() -> commands.check(core.patience())));
        }
        if (renewed == null || !isLive()) {
            throw lose("the server has no such hold", null);
        }
        keeping.wants(millis);
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

    /**
     * Stops keeping the hold, and does not release it: another client, perhaps of another program, goes on with it by
     * {@link DLock#resume}, with its owner and token, within the lease. Sends nothing.
     *
     * @throws LockLostException the hold was lost or released before
     * @throws IllegalStateException the hold is kept by a session, which ends with this program, has several names, or
     *     belongs to a thread
     */
    public void handOver() {
        if (!hasOneLease(request) || thread != null) {
            throw new IllegalStateException(request + ": a hold that is handed over has a lease, one name and no thread");
        }
        if (!isLive()) {
            // The timer may be late.
            throw isReleased() ? lostOr("released") : lose("its lease ended", null);
        }
        synchronized (this) {
            if (state != State.HELD) {
                throw lostOr("released");
            }
            state = State.RELEASED;
        }
        keeping.end();
        report.released();
        core.forget(this);
    }

    /** Returns for how many ms the server still has to keep the lock, even if it is released now; 0: not at all. */
    long staysMillis() {
        long left = request.time.leastMillis == 0 ? 0 : staysUntil - System.nanoTime();
        return left <= 0 ? 0 : TimeUnit.NANOSECONDS.toMillis(left) + 1;
    }

    /** Returns whether a renewal has no answer: the server may still execute it. */
    boolean isRenewalOpen() {
        return keeping.isRenewalOpen();
    }

    /**
     * Leaves the lock to a lease of this time, which nobody renews.
     *
     * @return whether the server had the hold
     */
    CompletableFuture<Boolean> releaseIn(long millis) {
        synchronized (this) {
            if (state != State.HELD) {
                return CompletableFuture.completedFuture(false);
            }
            state = State.RELEASED;
        }
        keeping.end();
        core.forget(this);
        if (isEnteredLate()) {
            commands.releaseLate(millis);
        }
        return report.releasing(commands.leaveTo(millis));
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

    /** Releases some of the names, or the whole hold if these are all. Completes with whether they were held. */
    CompletableFuture<Boolean> releaseNames(List<String> some) {
        if (some.containsAll(commands.names())) {
            return isReleased() ? CompletableFuture.completedFuture(true) : releaseAsync();
        }
        if (!isLive()) {
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
        return patiently(released(some, commands.releaseAll(some, lapse(), true)));
    }

    /** Takes a release of some names. If it fails, the session would keep these locks, so it repeats the release. */
    private CompletableFuture<Boolean> released(List<String> some, CompletableFuture<Boolean> released) {
        released.whenComplete((ok, failed) -> {
            if (failed != null && session != null) {
                core.releases.fails(commands);
                bound.keeper().owe(() -> commands.isInUse(some)
                        ? CompletableFuture.failedFuture(new Unanswered("its owner has come again", null))
                        : commands.releaseAllAgain(some, Deadline.afterMillis(Releases.REPAYING_MILLIS)));
            }
        });
        return released;
    }

    private synchronized boolean isReleased() {
        return state == State.RELEASED;
    }

    /** Returns whether this owner has this side of the name by this hold. */
    boolean isOf(String owner, String name, String side) {
        return commands.owner.equals(owner) && request.mode.side.equals(side) && commands.names().contains(name);
    }

    /** Returns whether the hold was granted for one name. */
    boolean isOfOneName() {
        return request.names.size() == 1;
    }

    /** Releases the lock as {@link #releaseAsync} does, but at once, even if it would have to stay for some time. */
    CompletableFuture<Boolean> free() {
        boolean wasHeld;
        boolean wasCertain = isHeld();
        synchronized (this) {
            wasHeld = state == State.HELD;
            if (state == State.RELEASED) {
                return CompletableFuture.completedFuture(false);
            }
            if (wasHeld) {
                state = State.RELEASED;
            }
        }
        keeping.end();
        core.forget(this);
        DedicatedConnection own = binding.end();
        Deadline lapse = lapse();
        if (session != null) {
            bound.keeper().leave(bound);
        }
        CompletableFuture<Boolean> released = report.releasing(
                released(commands.names(), commands.releaseAll(commands.names(), lapse, wasCertain))
                        .thenApply(all -> all && wasHeld));
        return patiently(released.whenComplete((ok, failed) -> {
            if (own != null && failed == null) {
                own.giveBack();
            } else if (own != null) {
                // The end of the connection releases a hold that is bound to it.
                own.leave();
            }
            binding.leaveOthers();
            if (isEnteredLate()) {
                commands.releaseLate(0);
            }
        }));
    }

    /** Lets the caller wait for a release for the patience only. Its repeats continue until the lease ends. */
    private CompletableFuture<Boolean> patiently(CompletableFuture<Boolean> released) {
        if (released.isDone()) {
            return released;
        }
        CompletableFuture<Boolean> result = new CompletableFuture<>();
        Timer.Task late = core.limit(
                () -> result.completeExceptionally(
                        core.unavailable(new TimeoutException("no answer to the release of " + request))),
                TimeUnit.MILLISECONDS.toNanos(core.patienceMillis));
        released.whenComplete((held, failed) -> {
            late.cancel();
            if (failed == null) {
                result.complete(held);
            } else {
                result.completeExceptionally(Futures.rethrown(Futures.cause(failed)));
            }
        });
        return result;
    }

    /** Returns a time at which the hold has certainly lapsed on the server. */
    private synchronized Deadline lapse() {
        return Deadline.afterNanos(Math.max(0, keeping.until() - System.nanoTime()) + TimeUnit.SECONDS.toNanos(1));
    }

    /**
     * Releases some of the permits, but not all. Releases follow each other: the server records one request of a hold, so
     * it executes the repeat of an earlier one again.
     */
    CompletableFuture<Boolean> releasePermits(long some) {
        CompletableFuture<Boolean> released = new CompletableFuture<>();
        CompletableFuture<?> before;
        synchronized (this) {
            permits -= some;
            before = leaving;
            leaving = released;
        }
        before.handle((done, failed) -> null).thenCompose(done -> leavePermits(some)).whenComplete((held, failed) -> {
            if (failed == null) {
                released.complete(held);
            } else {
                released.completeExceptionally(Futures.cause(failed));
            }
        });
        return released;
    }

    /** If a copy of an earlier release may still be executed, the permits are free with the last one of the hold. */
    private CompletableFuture<Boolean> leavePermits(long some) {
        if (isLeftLate()) {
            return CompletableFuture.completedFuture(isLive());
        }
        return releaseSome("PERMITS", some).thenApply(reply -> {
            if (reply == null) {
                lose("it was lost before its release", null);
            }
            return reply != null;
        });
    }

    synchronized long permits() {
        return permits;
    }

    /** Returns whether the hold belongs to a thread that has ended. */
    boolean isOfDeadThread() {
        return thread != null && !thread.isAlive();
    }

    /** Releases one entry, but not the last. */
    CompletableFuture<Void> leaveOnce() {
        return releaseSome().thenAccept(reply -> {
            if (reply == null || reply != 0) {
                throw lose("it was lost before its release", null);
            }
        });
    }

    private CompletableFuture<Long> releaseSome(Object... options) {
        return commands.releaseSome(options).whenComplete((answer, failed) -> {
            if (failed == null ? answer.repeated : Futures.cause(failed) instanceof UnavailableException) {
                synchronized (this) {
                    isLeftLate = true;
                }
            }
        }).thenApply(answer -> answer.reply);
    }

    /**
     * Returns whether a copy of a release of some entries may still be executed. The server ignores it unless a later
     * request of this hold has replaced the release in the server's record; then it would release more entries. So
     * nothing with a {@code REQUEST} follows such a release.
     */
    synchronized boolean isLeftLate() {
        return isLeftLate;
    }

    /** Enters once more. Fails with {@link LockLostException} if the server has no such hold. */
    CompletableFuture<Void> enter(Request again, Deadline giveUp) {
        long sent = System.nanoTime();
        return entering(again, giveUp).thenCompose(reply -> {
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

    private CompletableFuture<Long> entering(Request again, Deadline giveUp) {
        return commands.enter(again, giveUp).whenComplete((answer, failed) -> {
            if (failed == null ? answer.repeated : Futures.cause(failed) instanceof UnavailableException) {
                boolean isOver;
                synchronized (this) {
                    isEnteredLate = true;
                    isOver = state != State.HELD;
                }
                if (isOver) {
                    commands.releaseLate(0);
                }
            }
        }).thenApply(answer -> answer.reply);
    }

    /** Notes that a copy of the acquisition may still be executed. */
    synchronized void mayBeEnteredLate() {
        isEnteredLate = true;
    }

    /** Returns whether a copy of the acquisition, or of a re-entry, may still be executed. */
    synchronized boolean isEnteredLate() {
        return isEnteredLate;
    }

    /**
     * Re-entry keeps the longer of the two leases, which a cap may have cut. If nobody renews the lease, the server is
     * asked how much of it is left.
     */
    private CompletableFuture<Void> entered(long sent, long nanos) {
        return keeping.raised(sent, nanos)
                ? CompletableFuture.completedFuture(null)
                : keeping.looked(() -> commands.check(core.patience())).thenApply(left -> null);
    }

    /** Asks for the cap, which the session has to know. Completes with whether the server has the hold. */
    CompletableFuture<Boolean> learnCap(Deadline giveUp) {
        return bound.keeper().learnCap(bound, giveUp);
    }

    /** Returns an exception with the reason of the loss, or with this one if the hold is not lost. */
    LockLostException lostOr(String otherwise) {
        synchronized (this) {
            if (lost != null) {
                return new LockLostException(lost.getMessage(), lost);
            }
        }
        return new LockLostException(request + ": " + otherwise, null);
    }

    /** Marks the hold as lost, unless it is released or lost already. Returns the exception to throw. */
    LockLostException lose(String why, Throwable cause) {
        // The server may still have the hold, and the session would keep it alive.
        return lose(why, cause, session != null && bound.keeper().isOpen());
    }

    private LockLostException lose(String why, Throwable cause, boolean isKept) {
        List<Consumer<? super LockLostException>> told;
        LockLostException loss;
        synchronized (this) {
            if (state != State.HELD) {
                return lostOr(state == State.RELEASED ? "released" : why);
            }
            state = State.LOST;
            loss = new LockLostException(request + " was lost: " + why, cause);
            lost = loss;
            told = new ArrayList<>(listeners);
            listeners.clear();
        }
        report.lost();
        keeping.end();
        core.forget(this);
        if (session != null) {
            bound.keeper().leave(bound);
        }
        DedicatedConnection own = binding.end();
        if (own != null) {
            own.leave();
        }
        binding.leaveOthers();
        if (isEnteredLate()) {
            commands.releaseLate(0);
        }
        if (isKept) {
            List<String> names = commands.names();
            released(names, commands.releaseAllAgain(names, Deadline.afterMillis(Releases.REPAYING_MILLIS)));
        } else if (commands.names().size() > 1) {
            // Releases the other locks of the set.
            commands.releaseAllAgain(commands.names(), lapse());
        }
        told.forEach(listener -> core.tell(() -> listener.accept(loss)));
        return loss;
    }

    @Override
    public String toString() {
        return "Hold of " + request + " by " + commands.owner + ", token " + commands.token;
    }
}
