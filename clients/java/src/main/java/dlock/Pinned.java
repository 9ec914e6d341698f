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

    // Guarded by this.
    private DedicatedConnection connection;
    /** How often {@link #end} was called. A connection that was asked for before the last time comes too late. */
    private int ends;

    /** {@code key}: returns a key that the node has. */
    Pinned(Backend backend, Supplier<String> key) {
        this.backend = backend;
        this.key = key;
    }

    /** Sends a command. {@code limited}: limits its time, with that of making the connection. */
    CompletableFuture<Object> ask(byte[][] command, UnaryOperator<CompletableFuture<Object>> limited) {
        String its = key.get();
        DedicatedConnection before;
        int ended;
        synchronized (this) {
            before = connection;
            ended = ends;
        }
        CompletableFuture<DedicatedConnection> at =
                before != null ? CompletableFuture.completedFuture(before) : backend.dedicated(its);
        return limited.apply(at.thenCompose(taken -> {
            DedicatedConnection kept = keep(taken, ended);
            if (kept != taken && before == null) {
                taken.giveBack();
            }
            return kept != null
                    ? kept.ask(command)
                    : CompletableFuture.failedFuture(new Unanswered("the connection came too late", null));
        })).whenComplete((reply, failed) -> {
            Throwable reason = Futures.cause(failed);
            // A node that does not answer, or refuses for the moment, may no longer be the primary.
            if (failed != null && (!(reason instanceof ServerException) || Unanswered.mayRepeat(reason))) {
                backend.distrust(its);
                end();
            }
        });
    }

    /** Keeps a connection, unless there is one. Returns the one that is kept; {@code null}: this one comes too late. */
    private synchronized DedicatedConnection keep(DedicatedConnection taken, int ended) {
        if (ended != ends) {
            return null;
        }
        if (connection == null) {
            connection = taken;
        }
        return connection;
    }

    void end() {
        DedicatedConnection left;
        synchronized (this) {
            ends++;
            left = connection;
            connection = null;
        }
        if (left != null) {
            left.leave();
        }
    }
}
