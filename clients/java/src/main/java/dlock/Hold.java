package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Future;
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
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private enum State {
        HELD,
        RELEASED,
        LOST
    }

    private final Core core;
    private final Request request;
    private final String owner;
    private final long token;
    /** The thread to which the hold belongs, or {@code null}. */
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners = new ArrayList<>();

    // Guarded by this.
    private State state = State.HELD;
    private LockLostException lost;
    private long leaseNanos;
    private long until;
    private long permits;
    /** The connection that a session is bound to, or {@code null}. */
    private DedicatedConnection connection;
    private Future<?> timer;

    Hold(Core core, Request request, String owner, Acquisition.Grant grant, Thread thread) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.token = grant.token;
        this.thread = thread;
        this.connection = grant.connection;
        this.permits = request.permits;
        this.leaseNanos = TimeUnit.MILLISECONDS.toNanos(request.lease.millis);
        this.until = grant.sent + leaseNanos;
    }

    /** Starts to keep the hold alive. */
    Hold keep() {
        synchronized (this) {
            schedule(renewalNanos());
        }
        if (connection != null) {
            DedicatedConnection bound = connection;
            bound.whenEnded(() -> unbound(bound));
        }
        return this;
    }

    /**
     * Returns the fencing token: greater than the token of every earlier grant. Pass it to the resource that the lock
     * protects, which refuses smaller tokens.
     */
    public long fencingToken() {
        return token;
    }

    /** Returns the owner name. */
    public String owner() {
        return owner;
    }

    /** Returns the name of the lock, or the names of locks that were acquired together. */
    public List<String> names() {
        return request.names;
    }

    /** Returns the time for which the lock is certainly held, unless a client deletes it. Zero if lost or released. */
    public synchronized Duration remaining() {
        return Duration.ofNanos(state == State.HELD ? Math.max(0, until - System.nanoTime()) : 0);
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
        return join(ask("DLOCK.CHECK").thenApply(left -> left != null && isHeld()));
    }

    /**
     * Renews the hold with this lease, which becomes the hold's own.
     *
     * @throws LockLostException the hold was lost or released before
     */
    public void extend(Duration lease) {
        long millis = lease.toMillis();
        if (millis < 1 || request.isSession() && millis < 300) {
            throw new IllegalArgumentException("a lease of " + lease + " is too short");
        }
        if (!isHeld()) {
            throw lostOr("released");
        }
        long sent = System.nanoTime();
        Long renewed = join(ask("DLOCK.RENEW", "PX", millis));
        synchronized (this) {
            if (renewed != null && state == State.HELD) {
                leaseNanos = TimeUnit.MILLISECONDS.toNanos(millis);
                until = sent + leaseNanos;
                schedule(renewalNanos());
                return;
            }
        }
        throw lose("the server has no such hold", null);
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
        if (!join(releaseAsync())) {
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
        join(releaseAsync());
    }

    /**
     * Releases the lock without waiting for the reply.
     *
     * @return whether the lock was held until the release
     */
    public CompletableFuture<Boolean> releaseAsync() {
        boolean wasHeld;
        DedicatedConnection bound;
        synchronized (this) {
            wasHeld = state == State.HELD;
            if (state == State.RELEASED) {
                return CompletableFuture.completedFuture(false);
            }
            if (wasHeld) {
                state = State.RELEASED;
            }
            stopTimer();
            bound = connection;
            connection = null;
        }
        Deadline lapsed = lapse();
        CompletableFuture<Boolean> released = released(lapsed).thenApply(all -> all && wasHeld);
        released.whenComplete((ok, failed) -> {
            if (bound != null && failed == null) {
                bound.giveBack();
            } else if (bound != null) {
                // The end of the connection releases a session.
                bound.leave();
            }
        });
        // The caller waits no longer than the patience. The repeats continue until the lease ends.
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
        return Deadline.afterNanos(Math.max(0, until - System.nanoTime()) + TimeUnit.SECONDS.toNanos(1));
    }

    /** Releases all entries of every name. Completes with whether none of them was lost. */
    private CompletableFuture<Boolean> released(Deadline lapsed) {
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (String name : request.names) {
            byte[][] command =
                    Words.command("DLOCK.RELEASE", name, owner, request.mode.side, "ALL", "TOKEN", token);
            // A repeat gets nil if the first copy was executed.
            all.add(core.repeat(name, command, lapsed)
                    .thenApply(answer -> answer.reply != null || answer.repeated && !lapsed.hasPassed())
                    .exceptionally(Hold::isGone));
        }
        return Futures.all(all).thenApply(done -> all.stream().allMatch(CompletableFuture::join));
    }

    private static boolean isGone(Throwable failed) {
        Throwable reason = Futures.cause(failed);
        if (reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE")) {
            return false;
        }
        throw Futures.rethrown(reason);
    }

    /** Releases some of the permits, but not all. */
    CompletableFuture<Boolean> releasePermits(long some) {
        synchronized (this) {
            permits -= some;
        }
        byte[][] command = Words.command("DLOCK.RELEASE", request.first(), owner, request.mode.side, "PERMITS", some,
                "TOKEN", token, "REQUEST", core.freshId());
        return core.repeat(request.first(), command, core.patience()).thenApply(answer -> answer.reply != null);
    }

    synchronized long permits() {
        return permits;
    }

    Thread thread() {
        return thread;
    }

    /** Releases one entry, but not the last. */
    CompletableFuture<Void> leaveOnce() {
        byte[][] command = Words.command("DLOCK.RELEASE", request.first(), owner, request.mode.side,
                "TOKEN", token, "REQUEST", core.freshId());
        return core.repeat(request.first(), command, core.patience()).thenAccept(answer -> {
            Long reply = Words.number(answer.reply);
            if (reply == null || reply != 0) {
                throw lose("it was lost before its release", null);
            }
        });
    }

    /** Enters once more. Fails with {@link LockLostException} if the server has no such hold. */
    CompletableFuture<Void> enter(Request again) {
        long sent = System.nanoTime();
        byte[][] command = again.acquire(owner, core.freshId(), false, DedicatedConnection.NOT_AT_ALL);
        return core.repeat(request.first(), command, core.patience()).thenCompose(answer -> {
            Long reply = Words.number(answer.reply);
            if (reply != null && reply == token) {
                entered(sent, TimeUnit.MILLISECONDS.toNanos(again.lease.millis));
                return CompletableFuture.completedFuture(null);
            }
            CompletableFuture<?> undone = CompletableFuture.completedFuture(null);
            if (reply != null) {
                undone = core.repeat(request.first(), Words.command("DLOCK.RELEASE", request.first(), owner,
                        request.mode.side, "ALL", "TOKEN", reply), core.patience());
            }
            LockLostException why = lose("it was lost before it was entered again", null);
            return undone.handle((done, failed) -> {
                throw why;
            });
        });
    }

    /** Re-entry keeps the longer of the two leases. */
    private synchronized void entered(long sent, long nanos) {
        if (state == State.HELD) {
            leaseNanos = Math.max(leaseNanos, nanos);
            until = Math.max(until, sent + nanos);
        }
    }

    /**
     * Asks the server for the end of the lease, if the hold may have been granted long before the reply came.
     *
     * @return whether it is still held
     */
    CompletableFuture<Boolean> confirm() {
        synchronized (this) {
            if (until - System.nanoTime() >= leaseNanos - leaseNanos / 3) {
                return CompletableFuture.completedFuture(true);
            }
        }
        return look().thenApply(held -> held != null);
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

    private long renewalNanos() {
        return request.lease.kind == Lease.Kind.FIXED ? Long.MAX_VALUE : leaseNanos / 3;
    }

    /** Schedules {@link #tick} after this time, or at the end of the lease. The caller holds the monitor. */
    private void schedule(long nanos) {
        stopTimer();
        if (state == State.HELD) {
            timer = core.schedule(this::tick, Math.min(nanos, until - System.nanoTime()));
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
            lapsed = until - System.nanoTime() <= 0;
            if (!lapsed) {
                schedule(Long.MAX_VALUE);
            }
        }
        if (lapsed) {
            lose("its lease ended", null);
        } else if (thread != null && !thread.isAlive()) {
            // The thread ended without unlocking.
            releaseAsync();
        } else if (request.lease.kind != Lease.Kind.FIXED) {
            CompletableFuture<Long> renewal =
                    request.lease.kind == Lease.Kind.SESSION ? look() : renewed();
            renewal.whenComplete((ok, failed) -> {
                if (failed != null && !Unanswered.mayRepeat(Futures.cause(failed))) {
                    lose("it cannot be renewed", Futures.cause(failed));
                    return;
                }
                synchronized (this) {
                    schedule(failed == null ? renewalNanos() : Math.min(leaseNanos / 30, LONGEST_PAUSE_NANOS));
                }
            });
        }
    }

    private CompletableFuture<Long> renewed() {
        long sent = System.nanoTime();
        return each("DLOCK.RENEW", "PX", TimeUnit.NANOSECONDS.toMillis(leaseNanos)).thenApply(ok -> {
            if (ok == null) {
                lose("the server has no such hold", null);
            } else {
                heldUntil(sent + leaseNanos);
            }
            return ok;
        });
    }

    /** Checks the hold. The server renews a session, so the client only checks that the server and the hold exist. */
    private CompletableFuture<Long> look() {
        long sent = System.nanoTime();
        return each("DLOCK.CHECK").thenApply(left -> {
            if (left == null) {
                lose("the server has no such hold", null);
            } else {
                heldUntil(sent + TimeUnit.MILLISECONDS.toNanos(left));
            }
            return left;
        });
    }

    private synchronized void heldUntil(long time) {
        if (state == State.HELD) {
            until = time;
        }
    }

    /** Handles the end of the session's connection. Binds the hold to a new one, if the server still has the hold. */
    private void unbound(DedicatedConnection ended) {
        synchronized (this) {
            if (connection != ended || state != State.HELD) {
                return;
            }
            connection = null;
        }
        bindAgain(0);
    }

    private void bindAgain(int before) {
        core.backend.dedicated(request.first()).whenComplete((taken, failed) -> {
            if (failed != null) {
                bindLater(before, Futures.cause(failed));
                return;
            }
            List<CompletableFuture<Object>> bindings = new ArrayList<>();
            for (String name : request.names) {
                bindings.add(taken.ask(Words.command(
                        "DLOCK.RENEW", name, owner, request.mode.side, "SESSION", "TOKEN", token)));
            }
            Futures.all(bindings).whenComplete((done, refused) -> {
                Throwable reason = Futures.cause(refused);
                if (reason != null) {
                    taken.leave();
                    bindLater(before, reason);
                } else if (bindings.stream().anyMatch(binding -> binding.join() == null)) {
                    taken.leave();
                    lose("its connection ended", null);
                } else {
                    bound(taken);
                }
            });
        });
    }

    private void bindLater(int before, Throwable reason) {
        if (Unanswered.mayRepeat(reason) && isHeld() && !core.isClosed()) {
            // The timer of the lease ends these tries.
            Futures.after(Core.pauseMillis(before)).thenRun(() -> bindAgain(before + 1));
        } else {
            lose("its connection ended", reason);
        }
    }

    private void bound(DedicatedConnection taken) {
        boolean late;
        synchronized (this) {
            late = state != State.HELD;
            if (!late) {
                connection = taken;
            }
        }
        if (late) {
            taken.leave();
        } else {
            taken.whenEnded(() -> unbound(taken));
        }
    }

    /** Marks the hold as lost, unless it is released or lost already. Returns the exception to throw. */
    LockLostException lose(String why, Throwable cause) {
        List<Consumer<? super LockLostException>> told;
        LockLostException loss;
        DedicatedConnection bound;
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
            bound = connection;
            connection = null;
        }
        if (bound != null) {
            bound.leave();
        }
        if (request.names.size() > 1) {
            // Releases the other locks of the set.
            released(lapse());
        }
        told.forEach(listener -> core.tell(() -> listener.accept(loss)));
        return loss;
    }

    /** Sends the command once for each name. Completes with the smallest reply, or {@code null} if one is nil. */
    private CompletableFuture<Long> each(String command, Object... options) {
        DedicatedConnection bound;
        synchronized (this) {
            bound = connection;
        }
        List<CompletableFuture<Object>> replies = new ArrayList<>();
        for (String name : request.names) {
            byte[][] words = words(command, name, options);
            // On the session's own connection, to detect that it is dead.
            replies.add(bound != null ? bound.ask(words) : core.backend.ask(name, words));
        }
        return least(replies);
    }

    /** The same, but repeats unanswered commands. */
    private CompletableFuture<Long> ask(String command, Object... options) {
        List<CompletableFuture<Object>> replies = new ArrayList<>();
        for (String name : request.names) {
            replies.add(core.repeat(name, words(command, name, options), core.patience())
                    .thenApply(answer -> answer.reply));
        }
        return least(replies);
    }

    private byte[][] words(String command, String name, Object... options) {
        if (command.equals("DLOCK.CHECK")) {
            return Words.command(command, name, token);
        }
        List<Object> words = new ArrayList<>(List.of(command, name, owner, request.mode.side, "TOKEN", token));
        words.addAll(List.of(options));
        return Words.command(words.toArray());
    }

    private static CompletableFuture<Long> least(List<CompletableFuture<Object>> replies) {
        return Futures.all(replies).thenApply(done -> {
            Long least = Long.MAX_VALUE;
            for (CompletableFuture<Object> reply : replies) {
                Long number = Words.number(reply.join());
                if (number == null) {
                    return null;
                }
                least = Math.min(least, number);
            }
            return least;
        }).exceptionally(failed -> {
            Throwable reason = Futures.cause(failed);
            if (reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE")) {
                return null;
            }
            throw Futures.rethrown(reason);
        });
    }

    /** Waits for the result, and throws the exception itself. An interrupt does not end the wait. */
    static <T> T join(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException e) {
            throw unwrapped(e);
        }
    }

    static RuntimeException unwrapped(Throwable failure) {
        Throwable reason = Futures.cause(failure);
        if (reason instanceof Unanswered) {
            return new UnavailableException(reason.getMessage(), reason);
        }
        if (!(reason instanceof RuntimeException)) {
            return new IllegalStateException(reason);
        }
        // The stack of the calling thread is more useful than that of the I/O thread.
        reason.setStackTrace(new Throwable().getStackTrace());
        return (RuntimeException) reason;
    }

    @Override
    public String toString() {
        return "Hold of " + request + " by " + owner + ", token " + token;
    }
}
