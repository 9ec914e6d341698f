package dlock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Helpers for {@link CompletableFuture}. */
final class Futures {
    private Futures() {}

    /** Returns the reason without the exceptions in which futures wrap it. */
    static Throwable cause(Throwable failure) {
        Throwable reason = failure;
        while ((reason instanceof CompletionException || reason instanceof ExecutionException)
                && reason.getCause() != null) {
            reason = reason.getCause();
        }
        return reason;
    }

    /** Wraps a reason, unless it is wrapped, so that a stage can throw it. */
    static CompletionException rethrown(Throwable failure) {
        return failure instanceof CompletionException
                ? (CompletionException) failure
                : new CompletionException(failure);
    }

    static CompletableFuture<Void> after(long millis) {
        Executor later = CompletableFuture.delayedExecutor(millis, TimeUnit.MILLISECONDS, Runnable::run);
        return CompletableFuture.runAsync(() -> {}, later);
    }

    /**
     * Ends the future after {@code millis} with a {@link TimeoutException}, unless it has ended by itself. The returned
     * future then fails with {@link Unanswered}.
     */
    static <T> CompletableFuture<T> within(CompletableFuture<T> future, long millis, String what) {
        future.orTimeout(millis, TimeUnit.MILLISECONDS);
        return future.exceptionally(failed -> {
            if (cause(failed) instanceof TimeoutException) {
                throw new Unanswered(what + " within " + millis + " ms", null);
            }
            throw rethrown(failed);
        });
    }

    static CompletableFuture<Void> all(List<? extends CompletableFuture<?>> futures) {
        return CompletableFuture.allOf(futures.toArray(new CompletableFuture<?>[0]));
    }

    /** Waits until all are done, however they end, or until this time. An interrupt does not end the wait. */
    static void awaitAll(List<CompletableFuture<?>> futures, Deadline end) {
        CompletableFuture<?> all = all(futures).handle((done, failed) -> null);
        awaitUninterruptibly(all, end);
    }

    /** Waits until it is done, however it ends, or until this time. Keeps the thread's interrupt status. */
    static void awaitUninterruptibly(CompletableFuture<?> future, Deadline end) {
        boolean interrupted = false;
        while (!future.isDone() && !end.hasPassed()) {
            try {
                future.get(end.leftNanos(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                interrupted = true;
            } catch (ExecutionException | TimeoutException e) {
                break;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Waits for the result. Throws the {@link #unwrapped} reason of a failure. An interrupt does not end the wait. */
    static <T> T join(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException e) {
            throw unwrapped(e);
        }
    }

    static RuntimeException unwrapped(Throwable failure) {
        Throwable reason = cause(failure);
        // A refusal for the moment, as that of a server that starts, is no answer.
        if (Unanswered.mayRepeat(reason)) {
            return new UnavailableException(reason.getMessage(), reason);
        }
        if (!(reason instanceof RuntimeException)) {
            return new IllegalStateException(reason);
        }
        // The stack of the calling thread is more useful than that of the I/O thread.
        reason.setStackTrace(new Throwable().getStackTrace());
        return (RuntimeException) reason;
    }
}
