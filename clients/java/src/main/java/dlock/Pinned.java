package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;

/**
 * A connection to the node of a cluster that has a key, kept for the commands without a key. After a failure the next
 * command makes another one, which may lead to another node.
 */
final class Pinned {
    private final Backend backend;
    private final Supplier<String> key;
    private DedicatedConnection connection;

    /** {@code key}: one that the node has. */
    Pinned(Backend backend, Supplier<String> key) {
        this.backend = backend;
        this.key = key;
    }

    /** Sends a command. {@code limited}: lets it take only so long. */
    CompletableFuture<Object> ask(byte[][] command, UnaryOperator<CompletableFuture<Object>> limited) {
        String its = key.get();
        DedicatedConnection before;
        synchronized (this) {
            before = connection;
        }
        CompletableFuture<DedicatedConnection> at =
                before != null ? CompletableFuture.completedFuture(before) : backend.dedicated(its);
        return limited.apply(at.thenCompose(taken -> {
            synchronized (this) {
                connection = taken;
            }
            return taken.ask(command);
        })).whenComplete((reply, failed) -> {
            Throwable reason = Futures.cause(failed);
            // A node that refuses for the moment may be the primary no more.
            if (failed != null && (!(reason instanceof ServerException) || Unanswered.mayRepeat(reason))) {
                backend.distrust(its);
                end();
            }
        });
    }

    void end() {
        DedicatedConnection left;
        synchronized (this) {
            left = connection;
            connection = null;
        }
        if (left != null) {
            left.leave();
        }
    }
}
