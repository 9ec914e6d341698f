package dlock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/** What {@link CompletableFuture} lacks. */
final class Futures {
    private Futures() {}

    /** The reason itself, out of what futures wrap it in. */
    static Throwable cause(Throwable failure) {
        Throwable reason = failure;
        while ((reason instanceof CompletionException || reason instanceof ExecutionException)
                && reason.getCause() != null) {
            reason = reason.getCause();
        }
        return reason;
    }

    /** The reason as something that may be thrown out of a stage. */
    static CompletionException rethrown(Throwable failure) {
        return failure instanceof CompletionException
                ? (CompletionException) failure
                : new CompletionException(failure);
    }

    static CompletableFuture<Void> after(long millis) {
        Executor later = CompletableFuture.delayedExecutor(millis, TimeUnit.MILLISECONDS, Runnable::run);
        return CompletableFuture.runAsync(() -> {}, later);
    }

    static CompletableFuture<Void> all(List<? extends CompletableFuture<?>> futures) {
        return CompletableFuture.allOf(futures.toArray(new CompletableFuture<?>[0]));
    }
}
