package dlock;

import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** Acquires a lock and returns the {@link Hold}, which is kept alive from then on. */
final class Granting {
    /** The longest time that an interrupted thread waits until its request has left the queue. */
    private static final long LEAVING_MILLIS = 3000;

    private final Core core;
    private final Request request;
    private final String owner;
    private final Deadline end;
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners;
    /** The hold, or {@code null} if the wait has ended. */
    private final CompletableFuture<Hold> result = new CompletableFuture<>();

    // Guarded by this.
    private Acquisition current;
    private boolean abandoned;

    /** Whether an interrupted request may still be in the queue, because the server did not answer. */
    private boolean unsettled;

    /** {@code thread}: the thread to which the hold belongs, or {@code null}. */
    Granting(
            Core core,
            Request request,
            String owner,
            Deadline end,
            Thread thread,
            List<Consumer<? super LockLostException>> listeners) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.end = end;
        this.thread = thread;
        this.listeners = listeners;
    }

    CompletableFuture<Hold> start() {
        next();
        return result;
    }

    /** Abandons the acquisition. Completes when it has left the queue and holds nothing. Never fails. */
    CompletableFuture<Void> abandon() {
        CompletableFuture<Void> left;
        synchronized (this) {
            abandoned = true;
            left = current == null ? CompletableFuture.completedFuture(null) : current.abandon();
        }
        return left.thenCompose(done -> result.handle((hold, failed) -> hold))
                .thenCompose(hold -> hold == null
                        ? CompletableFuture.completedFuture(null)
                        : hold.releaseAsync().handle((released, failed) -> null));
    }

    /** Waits for the result. An interrupt abandons the acquisition before the exception is thrown. */
    Hold awaitInterruptibly() throws InterruptedException {
        try {
            return start().get();
        } catch (ExecutionException e) {
            throw Futures.unwrapped(e);
        } catch (InterruptedException e) {
            CompletableFuture<Void> left = abandon();
            boolean again = awaitLeft(left);
            unsettled = !left.isDone();
            if (again) {
                Thread.currentThread().interrupt();
            }
            throw e;
        }
    }

    boolean isUnsettled() {
        return unsettled;
    }

    /** Waits, and returns whether the thread was interrupted again. */
    private static boolean awaitLeft(CompletableFuture<Void> left) {
        Deadline enough = Deadline.afterMillis(LEAVING_MILLIS);
        boolean interrupted = false;
        for (;;) {
            try {
                left.get(enough.leftNanos(), TimeUnit.NANOSECONDS);
                return interrupted;
            } catch (TimeoutException | ExecutionException e) {
                // The rest happens in the background.
                return interrupted;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
    }

    /** Waits for the result. An interrupt does not end the wait; the thread's interrupt status is kept. */
    Hold await() {
        CompletableFuture<Hold> hold = start();
        boolean interrupted = false;
        try {
            for (;;) {
                try {
                    return hold.get();
                } catch (InterruptedException e) {
                    interrupted = true;
                } catch (ExecutionException e) {
                    throw Futures.unwrapped(e);
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void next() {
        Acquisition acquisition = new Acquisition(core, request, owner, thread == null, end);
        synchronized (this) {
            if (!abandoned) {
                current = acquisition;
            } else {
                acquisition = null;
            }
        }
        if (acquisition == null) {
            result.completeExceptionally(new CancellationException());
            return;
        }
        acquisition.start().whenComplete((grant, failed) -> {
            if (failed != null) {
                result.completeExceptionally(Futures.cause(failed));
            } else if (grant == null) {
                result.complete(null);
            } else {
                granted(grant);
            }
        });
    }

    private void granted(Acquisition.Grant grant) {
        Hold hold = new Hold(core, request, owner, grant, thread);
        hold.confirm().exceptionally(failed -> hold.isHeld()).thenAccept(held -> {
            if (held) {
                listeners.forEach(hold::onLost);
                result.complete(hold.keep());
            } else if (end.hasPassed()) {
                result.complete(null);
            } else {
                next();
            }
        });
    }
}
