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
    /** The thread that holds it; {@code null}: none in particular. */
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners = new ArrayList<>();

    // Guarded by this.
    private State state = State.HELD;
    private LockLostException lost;
    private long leaseNanos;
    private long until;
    private long permits;
    /** What the session is bound to; {@code null}: nothing, or no more. */
    private Line line;
    private Future<?> timer;

    Hold(Core core, Request request, String owner, Acquisition.Grant grant, Thread thread) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.token = grant.token;
        this.thread = thread;
        this.line = grant.line;
        this.permits = request.permits;
        this.leaseNanos = TimeUnit.MILLISECONDS.toNanos(request.lease.millis);
        this.until = grant.sent + leaseNanos;
    }

    /** Starts to look after the hold. */
    Hold keep() {
        synchronized (this) {
            schedule(renewalNanos());
        }
        if (line != null) {
            Line bound = line;
            bound.whenEnded(() -> unbound(bound));
        }
        return this;
    }

    /**
     * Returns the fencing token: greater than that of every earlier grant of the same server. Give it to whatever the
     * lock protects, and let that refuse smaller ones.
     */
    public long fencingToken() {
        return token;
    }

    /** Returns who the server knows as the holder. */
    public String owner() {
        return owner;
    }

    /** Returns the names of the locks: one, or several that were taken together. */
    public List<String> names() {
        return request.names;
    }

    /** Returns for how long the lock is certainly held, if nobody deletes it; zero if it is lost or released. */
    public synchronized Duration remaining() {
        return Duration.ofNanos(state == State.HELD ? Math.max(0, until - System.nanoTime()) : 0);
    }

    /** Returns whether the lock is held, as far as is known here, without asking the server. */
    public boolean isHeld() {
        return !remaining().isZero();
    }

    /**
     * Has a listener told, once, when the hold is lost; at once if it is lost already. It is called by a thread of the
     * client's executor. A hold that is released in time is not lost.
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
     * Makes the lease end after this time from now, and be that long from then on.
     *
     * @throws LockLostException the hold was lost, or released, before
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
     * Releases the lock. Does nothing if that was done before.
     *
     * @throws LockLostException the hold was lost before
     * @throws UnavailableException no server answered; it is tried further in the background until the lease has ended
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

    /** Releases the lock as {@link #release()} does, except that it does not matter whether the hold was lost. */
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
     * Releases the lock without waiting for it.
     *
     * @return whether the lock was held up to then
     */
    public CompletableFuture<Boolean> releaseAsync() {
        boolean wasHeld;
        Line bound;
        synchronized (this) {
            wasHeld = state == State.HELD;
            if (state == State.RELEASED) {
                return CompletableFuture.completedFuture(false);
            }
            if (wasHeld) {
                state = State.RELEASED;
            }
            stopTimer();
            bound = line;
            line = null;
        }
        Deadline lapsed = lapse();
        CompletableFuture<Boolean> released = released(lapsed).thenApply(all -> all && wasHeld);
        released.whenComplete((ok, failed) -> {
            if (bound != null && failed == null) {
                bound.giveBack();
            } else if (bound != null) {
                // The end of its connection releases a session in any case.
                bound.leave();
            }
        });
        // The caller is told when its patience is over. Meanwhile it is tried further.
        return released.copy().orTimeout(core.patienceMillis, TimeUnit.MILLISECONDS).exceptionally(failed -> {
            Throwable reason = Futures.cause(failed);
            if (reason instanceof TimeoutException) {
                throw new UnavailableException("no answer to the release of " + request, reason);
            }
            throw Futures.rethrown(reason);
        });
    }

    /** When the server has let go of it in any case, with some time to spare. */
    private synchronized Deadline lapse() {
        return Deadline.afterNanos(Math.max(0, until - System.nanoTime()) + TimeUnit.SECONDS.toNanos(1));
    }

    /** Releases every name, all of its entries. Whether none of them was lost. */
    private CompletableFuture<Boolean> released(Deadline lapsed) {
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (String name : request.names) {
            byte[][] command =
                    Words.command("DLOCK.RELEASE", name, owner, request.mode.side, "ALL", "TOKEN", token);
            // A repeat that finds nothing finds what the first one did.
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

    /** Releases some of the permits, fewer than there are. */
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

    /** Gives up an entry that is not the last one. */
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

    /** Enters once more. Fails with {@link LockLostException} if the hold is not there any more. */
    CompletableFuture<Void> enter(Request again) {
        long sent = System.nanoTime();
        byte[][] command = again.acquire(owner, core.freshId(), false, Line.NOT_AT_ALL);
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

    /** The lease now is the longer one of that and what it was. */
    private synchronized void entered(long sent, long nanos) {
        if (state == State.HELD) {
            leaseNanos = Math.max(leaseNanos, nanos);
            until = Math.max(until, sent + nanos);
        }
    }

    /**
     * Learns from the server when the lease ends, after a wait in which it may have begun at any time.
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

    // Keeping it

    private long renewalNanos() {
        return request.lease.kind == Lease.Kind.FIXED ? Long.MAX_VALUE : leaseNanos / 3;
    }

    /** Has {@link #tick} called after that time, or when the lease ends. Holds the monitor. */
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
            // Nobody is left who could unlock it.
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

    /** A session is renewed by the server. What can be found out is whether the server is still there. */
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

    /** The connection of the session has ended. If the server did not end the hold with it, binds it to another one. */
    private void unbound(Line ended) {
        synchronized (this) {
            if (line != ended || state != State.HELD) {
                return;
            }
            line = null;
        }
        bindAgain(0);
    }

    private void bindAgain(int before) {
        core.backend.line(request.first()).whenComplete((taken, failed) -> {
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
            // A lease later it is lost in any case.
            Futures.after(Core.pauseMillis(before)).thenRun(() -> bindAgain(before + 1));
        } else {
            lose("its connection ended", reason);
        }
    }

    private void bound(Line taken) {
        boolean late;
        synchronized (this) {
            late = state != State.HELD;
            if (!late) {
                line = taken;
            }
        }
        if (late) {
            taken.leave();
        } else {
            taken.whenEnded(() -> unbound(taken));
        }
    }

    /** Marks it as lost, unless it is released or lost already. Returns what to throw. */
    LockLostException lose(String why, Throwable cause) {
        List<Consumer<? super LockLostException>> told;
        LockLostException loss;
        Line bound;
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
            bound = line;
            line = null;
        }
        if (bound != null) {
            bound.leave();
        }
        if (request.names.size() > 1) {
            // What is left of several.
            released(lapse());
        }
        told.forEach(listener -> core.tell(() -> listener.accept(loss)));
        return loss;
    }

    /** Sends that command for each name, to be repeated by the caller: the least of the replies, or nil. */
    private CompletableFuture<Long> each(String command, Object... options) {
        Line bound;
        synchronized (this) {
            bound = line;
        }
        List<CompletableFuture<Object>> replies = new ArrayList<>();
        for (String name : request.names) {
            byte[][] words = words(command, name, options);
            // A session is asked about where it is bound, so that a connection that is dead is found out.
            replies.add(bound != null ? bound.ask(words) : core.backend.ask(name, words));
        }
        return least(replies);
    }

    /** The same, repeated until it is answered. */
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

    /** The result, with the exception itself where there is one. An interrupt does not end it. */
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
        // Of the thread that gets it, not of the one that found out.
        reason.setStackTrace(new Throwable().getStackTrace());
        return (RuntimeException) reason;
    }

    @Override
    public String toString() {
        return "Hold of " + request + " by " + owner + ", token " + token;
    }
}
