package dlock;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Reports each change of a lock's holder, until it is closed. The server reports changes ({@code CLIENT TRACKING}), so
 * nothing polls. It uses a connection of its own, and outlives outages.
 */
public final class Watcher implements AutoCloseable {
    /** A watch asks at least this often, so that it notices a connection that is dead. */
    private static final long HEARTBEAT_MILLIS = 10_000;

    private final Core core;
    private final String name;
    private final Consumer<Optional<Holder>> listener;

    // Guarded by this.
    private boolean closed;
    private DedicatedConnection connection;
    private int failures;
    private Optional<Holder> known;
    /** Calls the listener for one change after the other. */
    private CompletableFuture<Void> told = CompletableFuture.completedFuture(null);

    Watcher(Core core, String name, Consumer<Optional<Holder>> listener) {
        this.core = core;
        this.name = name;
        this.listener = listener;
    }

    Watcher start() {
        connect();
        return this;
    }

    /** Ends the reports. */
    @Override
    public void close() {
        DedicatedConnection left;
        synchronized (this) {
            closed = true;
            left = connection;
            connection = null;
        }
        if (left != null) {
            left.leave();
        }
    }

    private synchronized boolean isOver() {
        return closed || core.isClosed();
    }

    private void connect() {
        if (isOver()) {
            return;
        }
        core.backend.dedicated(name).whenComplete((taken, failed) -> {
            if (failed != null) {
                later();
                return;
            }
            synchronized (this) {
                if (!closed) {
                    connection = taken;
                }
            }
            if (isOver()) {
                taken.leave();
                return;
            }
            taken.ask(Words.command("CLIENT", "TRACKING", "ON")).whenComplete((ok, refused) -> {
                if (refused == null) {
                    ask(taken);
                } else {
                    lost(taken);
                }
            });
        });
    }

    private void ask(DedicatedConnection at) {
        CompletableFuture<Void> changed = new CompletableFuture<>();
        at.whenInvalidated(() -> changed.complete(null));
        at.ask(Holder.question(name)).whenComplete((reply, failed) -> {
            if (failed != null) {
                lost(at);
                return;
            }
            found(Optional.ofNullable(Holder.of(reply)));
            long left = Holder.millisLeft(reply);
            long millis = left == 0 ? HEARTBEAT_MILLIS : Math.min(HEARTBEAT_MILLIS, left + 1);
            changed.completeOnTimeout(null, millis, TimeUnit.MILLISECONDS).thenRun(() -> core.tell(() -> {
                if (!isOver()) {
                    ask(at);
                }
            }));
            at.whenEnded(() -> changed.complete(null));
        });
    }

    private void found(Optional<Holder> holder) {
        synchronized (this) {
            failures = 0;
            if (holder.equals(known) || closed) {
                return;
            }
            known = holder;
            told = told.thenCompose(before -> {
                CompletableFuture<Void> done = new CompletableFuture<>();
                core.tell(() -> {
                    try {
                        listener.accept(holder);
                    } finally {
                        done.complete(null);
                    }
                });
                return done;
            });
        }
    }

    private void lost(DedicatedConnection at) {
        synchronized (this) {
            connection = null;
        }
        at.leave();
        later();
    }

    private void later() {
        long pause;
        synchronized (this) {
            pause = Core.pauseMillis(failures++);
        }
        Futures.after(pause).thenRun(this::connect);
    }
}
