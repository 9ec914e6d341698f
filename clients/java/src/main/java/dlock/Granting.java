package dlock;

import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** Makes a {@link Hold} of what is granted, and has it looked after. */
final class Granting {
    /** How long an interrupted thread waits for its request to have left the queue, if the server does not answer. */
    private static final long LEAVING_MILLIS = 3000;

    private final Core core;
    private final Request request;
    private final String owner;
    private final Deadline end;
    private final Thread thread;
    private final List<Consumer<? super LockLostException>> listeners;
    /** {@code null}: not in time. */
    private final CompletableFuture<Hold> result = new CompletableFuture<>();

    // Guarded by this.
    private Acquisition current;
    private boolean abandoned;

    /** {@code thread}: whose the hold will be; {@code null}: nobody's in particular. */
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

    /** Gives up. Completes when nothing is left in the queue or held. Never fails. */
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

    /** The hold, or {@code null}: not in time. An interrupt ends the wait, and by then nothing is left of it. */
    Hold awaitInterruptibly() throws InterruptedException {
        try {
            return start().get();
        } catch (ExecutionException e) {
            throw Hold.unwrapped(e);
        } catch (InterruptedException e) {
            CompletableFuture<Void> left = abandon();
            boolean again = awaitLeft(left);
            if (again) {
                Thread.currentThread().interrupt();
            }
            throw e;
        }
    }

    /** Whether it was interrupted meanwhile. */
    private static boolean awaitLeft(CompletableFuture<Void> left) {
        Deadline enough = Deadline.afterMillis(LEAVING_MILLIS);
        boolean interrupted = false;
        for (;;) {
            try {
                left.get(enough.leftNanos(), TimeUnit.NANOSECONDS);
                return interrupted;
            } catch (TimeoutException | ExecutionException e) {
                // It goes on in the background.
                return interrupted;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
    }

    /** The same, whatever interrupts it. */
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
                    throw Hold.unwrapped(e);
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void next() {
        Acquisition acquisition = new Acquisition(core, request, owner, end);
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
