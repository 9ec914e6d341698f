package dlock;

import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;

/** Acquires a lock within a limit, and returns the {@link Hold}, which is kept alive from then on. */
final class Granting {
    /** The longest time that an interrupted thread waits until its request has left the queue. */
    private static final long LEAVING_MILLIS = 50;

    private final Core core;
    private final Request request;
    private final String owner;
    private final Limit limit;
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners;
    /** The hold, or {@code null} if the wait has ended. */
    private final CompletableFuture<Hold> outcome = new CompletableFuture<>();
    /** The same for the caller, unless the limit has ended before. */
    private final CompletableFuture<Hold> result = new CompletableFuture<>();

    // Guarded by this.
    private Acquisition current;
    private boolean abandoned;
    private Future<?> timer;

    /** Whether an interrupted request may still be in the queue, because the server did not answer. */
    private boolean unsettled;

    /** {@code thread}: the thread to which the hold belongs, or {@code null}. */
    Granting(
            Core core,
            Request request,
            String owner,
            Limit limit,
            Thread thread,
            List<Consumer<? super LockLostException>> listeners) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.limit = limit;
        this.thread = thread;
        this.listeners = listeners;
    }

    CompletableFuture<Hold> start() {
        core.keep(this);
        outcome.whenComplete((hold, failed) -> {
            core.forget(this);
            if (failed == null) {
                result.complete(hold);
            } else {
                result.completeExceptionally(Futures.cause(failed));
            }
        });
        result.whenComplete((hold, failed) -> stopTimer());
        if (core.isClosing()) {
            close();
        }
        next();
        checkLimit();
        return result;
    }

    /** Gives up at the limit. A server that answers moves the limit of a wait without an end. */
    void checkLimit() {
        Acquisition asking;
        synchronized (this) {
            asking = current;
        }
        Throwable trouble = asking == null ? null : asking.trouble();
        // A server that was asked gets the time to answer. Without one, the end of the wait is the end.
        Deadline giveUp = limit.end.hasPassed() && trouble == null ? limit.giveUp() : limit.giveUpWithoutServer();
        if (giveUp.hasPassed()) {
            // A grant that came first stays: the caller has it.
            if (result.completeExceptionally(core.unavailable(trouble == null ? limit.silence() : trouble))) {
                abandon();
            }
            return;
        }
        synchronized (this) {
            if (!result.isDone()) {
                timer = core.schedule(this::checkLimit, giveUp.leftNanos());
            }
        }
    }

    private synchronized void stopTimer() {
        if (timer != null) {
            timer.cancel(false);
        }
    }

    /** Ends the acquisition because the client is closed. Completes when nothing is left of it. Never fails. */
    CompletableFuture<Void> close() {
        result.completeExceptionally(new UnavailableException("the client is closed", null));
        return abandon();
    }

    /** Abandons the acquisition. Completes when it has left the queue and holds nothing. Never fails. */
    CompletableFuture<Void> abandon() {
        Acquisition left;
        synchronized (this) {
            abandoned = true;
            left = current;
        }
        if (left == null) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> undone = left.abandon()
                .thenCompose(done -> outcome.handle((hold, failed) -> hold))
                .thenCompose(hold -> hold == null
                        ? CompletableFuture.completedFuture(null)
                        : hold.free().handle((released, failed) -> null));
        if (!undone.isDone()) {
            // The client that is closed waits for it.
            core.keep(this);
            undone.whenComplete((done, failed) -> core.forget(this));
        }
        return undone;
    }

    /**
     * Waits for the result. An interrupt abandons the acquisition. The exception is thrown when the request has left the
     * queue, or soon: then the rest happens in the background.
     */
    Hold awaitInterruptibly() throws InterruptedException {
        try {
            return start().get();
        } catch (ExecutionException e) {
            throw Futures.unwrapped(e);
        } catch (InterruptedException e) {
            CompletableFuture<Void> left = abandon();
            Futures.awaitUninterruptibly(left, Deadline.afterMillis(LEAVING_MILLIS));
            unsettled = !left.isDone();
            throw e;
        }
    }

    boolean isUnsettled() {
        return unsettled;
    }

    /** Waits for the result. An interrupt does not end the wait; the thread's interrupt status is kept. */
    Hold await() {
        return Futures.join(start());
    }

    private void next() {
        Session whole = request.lease.session;
        if (whole == null) {
            next(request);
            return;
        }
        synchronized (this) {
            if (abandoned) {
                outcome.completeExceptionally(new CancellationException());
                return;
            }
        }
        if (whole.closed() != null) {
            outcome.completeExceptionally(whole.closed());
            return;
        }
        whole.at(request.first()).whenComplete((session, failed) -> {
            if (failed == null) {
                next(session == whole ? request : request.with(request.lease.in(session)));
            } else if (whole.closed() != null) {
                outcome.completeExceptionally(whole.closed());
            } else if (Unanswered.mayRepeat(Futures.cause(failed))
                    || Futures.cause(failed) instanceof UnavailableException) {
                Futures.after(Core.pauseMillis(2)).thenRun(this::next);
            } else {
                outcome.completeExceptionally(Futures.cause(failed));
            }
        });
    }

    private void next(Request its) {
        Acquisition acquisition = new Acquisition(core, its, owner, thread == null, limit);
        synchronized (this) {
            if (!abandoned) {
                current = acquisition;
            } else {
                acquisition = null;
            }
        }
        if (acquisition == null) {
            outcome.completeExceptionally(new CancellationException());
            return;
        }
        Session session = its.lease.session;
        long openings = session == null ? 0 : session.openings();
        boolean isOfNode = session != null && session.isOfNode();
        if (isOfNode) {
            session.use(1);
        }
        acquisition.start().whenComplete((grant, failed) -> {
            if (isOfNode) {
                session.use(-1);
            }
            boolean isElsewhere = isOfNode && failed != null && request.lease.session.closed() == null
                    && (Session.isMissing(Futures.cause(failed)) || session.closed() != null);
            if (isElsewhere) {
                session.misplaced();
                Futures.after(Core.pauseMillis(1)).thenRun(this::next);
            } else if (failed != null) {
                outcome.completeExceptionally(Futures.cause(failed));
            } else if (grant == null) {
                outcome.complete(null);
            } else {
                granted(its, grant, openings);
            }
        });
    }

    private void granted(Request its, Acquisition.Grant grant, long openings) {
        Hold hold = new Hold(core, its, owner, grant, thread, openings);
        hold.confirm(limit.giveUp()).whenComplete((held, failed) -> {
            if (failed == null ? held : hold.isHeld()) {
                listeners.forEach(hold::onLost);
                outcome.complete(hold.keep());
            } else if (failed != null) {
                hold.free();
                outcome.completeExceptionally(Futures.cause(failed));
            } else if (limit.end.hasPassed()) {
                outcome.complete(null);
            } else {
                next();
            }
        });
    }
}
