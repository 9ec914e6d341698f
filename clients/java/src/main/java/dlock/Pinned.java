package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;

/**
 * A connection to the node of a cluster that has a key, kept for the commands without a key. If a command gets no
 * answer or is refused for the moment, the next one makes another connection, which may lead to another node.
 */
final class Pinned {
    private final Backend backend;
    private final Supplier<String> key;
    private DedicatedConnection connection;

    /** {@code key}: returns a key that the node has. */
    Pinned(Backend backend, Supplier<String> key) {
        this.backend = backend;
        this.key = key;
    }

    /** Sends a command. {@code limited}: limits its time, with that of making the connection. */
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
            // A node that does not answer, or refuses for the moment, may no longer be the primary.
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
