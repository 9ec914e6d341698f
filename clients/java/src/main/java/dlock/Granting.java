package dlock;

import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Acquires a lock within a limit, and returns the {@link Hold}, which is kept alive from then on. Does what {@link
 * Attempt} decides, and tells it what happens.
 */
final class Granting {
    /** The longest time that an interrupted thread waits until its request has left the queue. */
    private static final long LEAVING_MILLIS = 50;
    /** After a longer wait, a failure is the first one of a new outage. */
    private static final long WORKED_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Core core;
    private final Request request;
    private final boolean isOwnerShared;
    private final boolean isOwnerUsed;
    private final Limits limits;
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners;
    private final RequestReport report;
    /** The hold, or {@code null} if it was not granted. */
    private final CompletableFuture<Hold> result = new CompletableFuture<>();
    /** Completes when nothing is left of what was not granted, or not wanted. Never fails. */
    private final CompletableFuture<Void> cleaned = new CompletableFuture<>();

    // Guarded by this.
    private Attempt attempt;
    private int number;
    private Acquisition asking;
    /** Whether a request of a former owner may still be executed. */
    private boolean hasFormer;
    /** Why no server has the request now; {@code null}: a server has it, or none has failed. */
    private Throwable trouble;
    /** The last failure since the last answer. */
    private Throwable reason;
    /** Why the last grant, which is being released, is not confirmed. */
    private RuntimeException unconfirmed;
    private int failures;
    private Timer.Task timer;
    /** The grant, until its outcome. */
    private Confirmation granted;
    private boolean isOver;

    /** A decision, which depends on the time. */
    private interface Decision {
        Attempt.Action at(long now);
    }

    /**
     * {@code isOwnerShared}: whether the owner holds one of the locks already, on its other side. {@code isOwnerUsed}:
     * whether the server may have another hold of the owner. {@code thread}: the thread to which the hold belongs, or
     * {@code null}.
     */
    Granting(
            Core core,
            Request request,
            String owner,
            boolean isOwnerShared,
            boolean isOwnerUsed,
            Limits limits,
            Thread thread,
            List<Consumer<? super LockLostException>> listeners) {
        this.core = core;
        this.request = request;
        this.isOwnerShared = isOwnerShared;
        this.isOwnerUsed = isOwnerUsed;
        this.limits = limits;
        this.thread = thread;
        this.listeners = listeners;
        this.report = new RequestReport(core, request.names);
        this.attempt = attempt();
        this.asking = new Acquisition(core, request, owner, thread == null, limits);
    }

    CompletableFuture<Hold> start() {
        report.begin();
        core.keep(this);
        cleaned.whenComplete((done, failed) -> core.forget(this));
        result.whenComplete((hold, failed) -> stopTimer());
        // A release of the same owner, which a server may still execute, would release the grant of this request.
        CompletableFuture<Void> settled = core.releases.settled(asking.owner());
        if (thread != null) {
            core.releases.opens(asking.owner(), cleaned);
        }
        if (core.isClosing()) {
            close();
            return result;
        }
        settled.thenRun(() -> decide(now -> isOver ? null : attempt.begin(), 0));
        checkLimit();
        return result;
    }

    /** Returns whether it asks for this side of the name, with this owner. */
    synchronized boolean isFor(String owner, String name, String side) {
        return !isOver && asking.owner().equals(owner)
                && request.mode.side.equals(side) && request.names.contains(name);
    }

    /** Something happened: does what follows. Returns false if it comes too late to matter. */
    private boolean decide(Decision decision, long pauseMillis) {
        Attempt.Action action;
        synchronized (this) {
            action = decision.at(System.nanoTime());
        }
        perform(action, pauseMillis);
        return action != null;
    }

    private void perform(Attempt.Action action, long pauseMillis) {
        if (action == null) {
            return;
        }
        switch (action.step) {
            case TRY:
            case WAIT:
                if (action.isFresh && isOrphaned()) {
                    // The former owner may have the lock.
                    changeOwner().thenRun(() -> later(pauseMillis, () -> ask(action)));
                    return;
                }
                if (action.isFresh) {
                    forgetGrant(action.cleanup);
                }
                later(pauseMillis, () -> ask(action));
                return;
            case CONFIRM:
                later(pauseMillis, this::confirm);
                return;
            case GRANTED:
                deliver();
                return;
            case REFUSED:
                if (limits.isEndless()) {
                    again();
                    return;
                }
                end(action);
                return;
            default:
                end(action);
        }
    }

    /** An operator ended the wait (CLIENT UNBLOCK), but the caller wants to wait for as long as necessary. */
    private void again() {
        Attempt.Action action;
        synchronized (this) {
            attempt = attempt();
            action = attempt.begin();
        }
        perform(action, 0);
    }

    private Attempt attempt() {
        return new Attempt(limits, TimeUnit.MILLISECONDS.toNanos(request.firstLeaseMillis()), isOwnerUsed);
    }

    private static void later(long millis, Runnable task) {
        if (millis == 0) {
            task.run();
        } else {
            Futures.after(millis).thenRun(task);
        }
    }

    // The limit

    /** Gives up at the limit. A server that answers moves the limit of a wait without an end. */
    void checkLimit() {
        boolean hasServer;
        synchronized (this) {
            Long answered = asking.answered();
            if (answered != null) {
                limits.heard(answered);
            }
            hasServer = trouble == null;
        }
        Deadline giveUp = limits.over(limits.end.hasPassed() && hasServer);
        if (giveUp.hasPassed()) {
            decide(now -> attempt.over(now), 0);
            return;
        }
        synchronized (this) {
            if (!isOver) {
                timer = core.schedule(this::checkLimit, giveUp.leftNanos());
            }
        }
    }

    private synchronized void stopTimer() {
        isOver = true;
        if (timer != null) {
            timer.cancel();
        }
    }

    private void heard() {
        limits.heard(System.nanoTime());
        synchronized (this) {
            trouble = null;
            reason = null;
        }
    }

    // The request

    private void ask(Attempt.Action action) {
        Session whole = request.lease.session;
        if (whole == null) {
            ask(action, request);
            return;
        }
        if (whole.closed() != null) {
            fails(whole.closed(), 0);
            return;
        }
        whole.at(request.first()).whenComplete((session, failed) -> {
            if (failed == null) {
                ask(action, session == whole ? request : request.with(request.lease.in(session)));
            } else if (whole.closed() != null) {
                fails(whole.closed(), 0);
            } else if (Futures.cause(failed) instanceof UnavailableException) {
                repeat(action, Futures.cause(failed));
            } else {
                unsent(action, Futures.cause(failed));
            }
        });
    }

    private void ask(Attempt.Action action, Request its) {
        Session session = its.lease.session;
        long openings = session == null ? 0 : session.openings();
        long begun = System.nanoTime();
        int[] sent = new int[1];
        Acquisition at;
        synchronized (this) {
            at = asking;
        }
        if (session != null) {
            session.use(1);
        }
        at.send(its, action.step == Attempt.Step.WAIT, () -> {
            synchronized (this) {
                sent[0] = ++number;
                attempt.sends(number, System.nanoTime());
                trouble = null;
            }
        }).whenComplete((grant, failed) -> {
            if (session != null) {
                session.use(-1);
            }
            if (failed instanceof CancellationException) {
                return;
            }
            if (failed != null) {
                failed(action, its, sent[0], Futures.cause(failed), System.nanoTime() - begun);
            } else {
                heard();
                answered(its, at, sent[0], grant, openings);
            }
        });
    }

    private void answered(Request its, Acquisition at, int copy, Acquisition.Grant grant, long openings) {
        if (grant == null) {
            decide(now -> attempt.nil(copy, now), 0);
            return;
        }
        if (grant.unconfirmed != null) {
            synchronized (this) {
                unconfirmed = grant.unconfirmed;
            }
            at.giveBack(grant).thenRun(() -> fails(grant.unconfirmed, copy));
            return;
        }
        HoldCommands commands = new HoldCommands(core, its, at.owner(), grant.token);
        Confirmation confirmation = new Confirmation(its, grant, commands, openings, thread, at.isCopied());
        Attempt.Action action;
        boolean isUnwanted;
        synchronized (this) {
            action = attempt.granted(copy, System.nanoTime());
            granted = action == null ? granted : confirmation;
            isUnwanted = granted == null || granted.grant.token != grant.token;
        }
        if (isUnwanted) {
            at.giveBack(grant);
        }
        perform(action, 0);
    }

    /** {@code copy}: 0 if it was not sent. {@code waitedNanos}: how long it was in the queue before it failed. */
    private void failed(Attempt.Action action, Request its, int copy, Throwable reason, long waitedNanos) {
        Session whole = request.lease.session;
        if (whole != null && whole.closed() != null) {
            fails(whole.closed(), copy);
            return;
        }
        Session session = its.lease.session;
        boolean isElsewhere = session != whole && session.closed() != null;
        if (session != null && (Session.isMissing(reason) || isElsewhere)) {
            // The server was restarted, or another one has the key. The session opens itself again.
            if (session == whole) {
                session.missing();
            } else {
                session.misplaced();
            }
            limits.heard(System.nanoTime());
            decide(now -> copy == 0 ? attempt.cut(now) : attempt.refused(copy, now), Core.pauseMillis(1));
            return;
        }
        boolean isHeld = reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE");
        if (isHeld && core.besideMillis > 0) {
            heard();
            long pause = Math.min(core.besideMillis, limits.end.leftMillis());
            decide(now -> attempt.held(copy, now), Math.max(1, pause));
            return;
        }
        synchronized (this) {
            failures = waitedNanos > WORKED_NANOS ? 0 : failures;
        }
        if (copy == 0) {
            unsent(action, reason);
        } else if (!Unanswered.mayRepeat(reason)) {
            fails(reason, copy);
        } else {
            long pause = troubled(reason);
            boolean isLost = reason instanceof Unanswered && !(reason.getCause() instanceof ServerException);
            if (isLost && its.isSession() && isOwnerShared) {
                // An upgrade has the owner of its reader.
                fails(reason, 0);
                return;
            }
            decide(now -> !Unanswered.mayBeExecuted(reason) ? attempt.refused(copy, now)
                    : isLost && its.isSession() ? attempt.orphaned(now)
                    : attempt.cut(now), pause);
        }
    }

    /** No connection could send the action. */
    private void unsent(Attempt.Action action, Throwable reason) {
        if (Unanswered.mayRepeat(reason)) {
            repeat(action, reason);
        } else {
            fails(reason, 0);
        }
    }

    private void repeat(Attempt.Action action, Throwable reason) {
        later(Math.max(1, troubled(reason)), () -> {
            boolean isWanted;
            synchronized (this) {
                isWanted = !isOver;
            }
            if (isWanted) {
                ask(action);
            }
        });
    }

    /** Notes why no server has the request. Returns for how long to wait before it is sent again. */
    private synchronized long troubled(Throwable why) {
        trouble = why;
        reason = why;
        return Core.pauseMillis(failures++, limits.giveUp());
    }

    private void fails(Throwable reason, int copy) {
        Attempt.Action action;
        synchronized (this) {
            this.reason = reason;
            action = attempt.failed(copy);
        }
        perform(action, 0);
    }

    // The grant

    /** Renews a grant that may be old or cut, or asks for its cap if a named session keeps it. */
    private void confirm() {
        Confirmation its;
        int copy;
        boolean isAgain;
        synchronized (this) {
            its = granted;
            isAgain = trouble != null;
            if (isOver || its == null) {
                return;
            }
            copy = ++number;
            attempt.sends(copy, System.nanoTime());
        }
        its.confirm(isAgain, limits.giveUp(), attempt).whenComplete((answer, failed) -> {
            Throwable reason = Futures.cause(failed);
            if (failed == null) {
                heard();
                decide(now -> !answer.isThere ? attempt.gone(copy, now)
                        : answer.isCapped ? attempt.capped(copy, answer.until, now)
                        : attempt.ok(copy, now), 0);
            } else if (Unanswered.mayRepeat(reason) || Unanswered.writesNothing(reason)
                    || reason instanceof UnavailableException) {
                long pause = troubled(reason);
                decide(now -> attempt.cut(now), pause);
            } else {
                fails(reason, copy);
            }
        });
    }

    private synchronized boolean isOrphaned() {
        return granted == null;
    }

    /** A late copy of the request would release the lock. Completes when its owner has nothing, as far as is known. */
    private CompletableFuture<?> changeOwner() {
        Acquisition last;
        synchronized (this) {
            last = asking;
            asking = new Acquisition(core, request, core.freshOwner(), true, limits);
            hasFormer = true;
        }
        return last.abandon(true);
    }

    /** The grant is over. The next request has another id, and another owner if a copy of this one may come late. */
    private void forgetGrant(Attempt.Cleanup before) {
        Confirmation its;
        Acquisition last;
        synchronized (this) {
            its = granted;
            last = asking;
            granted = null;
            boolean isLate = before == Attempt.Cleanup.LEAVE;
            hasFormer |= isLate;
            asking = new Acquisition(core, request, isLate || thread == null ? core.freshOwner() : last.owner(),
                    isLate || thread == null, limits);
        }
        if (its.hold() != null) {
            its.hold().lose("the server has no such hold", null);
        }
        if (before == Attempt.Cleanup.NONE) {
            last.giveBack(its.grant);
        } else {
            if (its.grant.connection != null) {
                its.grant.connection.leave();
            }
            last.abandon(true);
        }
    }

    private void deliver() {
        Hold hold;
        synchronized (this) {
            hold = granted.asHold(attempt);
        }
        IllegalStateException closed = request.lease.session == null ? null : request.lease.session.closed();
        if (closed != null) {
            report.end(LockListener.Outcome.FAILED);
            result.completeExceptionally(closed);
        }
        listeners.forEach(hold::onLost);
        hold.keep();
        if (result.isDone()) {
            hold.free().whenComplete((done, failed) -> cleaned.complete(null));
            return;
        }
        cleaned.complete(null);
        if (report.end(LockListener.Outcome.GRANTED)) {
            hold.report.held();
        }
        if (result.complete(hold)) {
            hold.endUnlessKept();
        } else {
            hold.free();
        }
    }

    // The end

    private void end(Attempt.Action action) {
        Throwable why;
        RuntimeException tooFew;
        Confirmation its;
        Acquisition last;
        synchronized (this) {
            why = reason;
            tooFew = action.step == Attempt.Step.CANCELED ? null : unconfirmed;
            its = granted;
            last = asking;
        }
        CompletableFuture<?> left;
        if (action.cleanup == Attempt.Cleanup.RELEASE && its.hold() != null) {
            left = its.hold().free();
        } else if (action.cleanup == Attempt.Cleanup.RELEASE) {
            left = last.giveBack(its.grant);
        } else {
            left = last.abandon(action.cleanup == Attempt.Cleanup.LEAVE);
        }
        left.whenComplete((done, failed) -> cleaned.complete(null));
        report.end(action.step == Attempt.Step.CANCELED ? LockListener.Outcome.CANCELED
                : tooFew == null && action.step == Attempt.Step.REFUSED ? LockListener.Outcome.REFUSED
                : LockListener.Outcome.FAILED);
        if (tooFew != null) {
            result.completeExceptionally(tooFew);
        } else if (action.step == Attempt.Step.REFUSED) {
            result.complete(null);
        } else if (action.step == Attempt.Step.FAILED && why instanceof RuntimeException && !(why instanceof Unanswered)) {
            result.completeExceptionally(why);
        } else {
            result.completeExceptionally(core.unavailable(why == null ? limits.silence() : why));
        }
    }

    /** Ends the acquisition because the client is closed. Completes when nothing is left of it. Never fails. */
    CompletableFuture<Void> close() {
        report.end(LockListener.Outcome.CANCELED);
        result.completeExceptionally(new UnavailableException("the client is closed", null));
        return abandon();
    }

    /** Abandons the acquisition. Completes when it has left the queue and holds nothing. Never fails. */
    CompletableFuture<Void> abandon() {
        if (decide(now -> attempt.canceled(), 0) || result.isCompletedExceptionally()) {
            return cleaned;
        }
        // The grant came at this moment.
        return result.thenCompose(hold -> hold == null
                ? CompletableFuture.completedFuture(null)
                : hold.free().handle((released, failed) -> null));
    }

    /**
     * Waits for the result. An interrupt abandons the acquisition. The exception is thrown when the request has left the
     * queue, but no later than after {@link #LEAVING_MILLIS}: then the rest happens in the background.
     */
    Hold awaitInterruptibly() throws InterruptedException {
        try {
            return start().get();
        } catch (ExecutionException e) {
            throw Futures.unwrapped(e);
        } catch (InterruptedException e) {
            CompletableFuture<Void> left = abandon();
            Futures.awaitUninterruptibly(left, Deadline.afterMillis(LEAVING_MILLIS));
            throw e;
        }
    }

    /**
     * Returns whether a request may still be executed, because it was not answered. {@code isHeld}: the caller has the
     * hold, whose release takes care of the request's own copies.
     */
    synchronized boolean isUnsettled(boolean isHeld) {
        return hasFormer || !cleaned.isDone() || !isHeld && asking.isCopied();
    }

    /** Waits for the result. An interrupt does not end the wait; the thread's interrupt status is kept. */
    Hold await() {
        return Futures.join(start());
    }
}
