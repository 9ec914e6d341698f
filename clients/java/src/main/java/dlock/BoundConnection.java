package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.Function;

/** The connection that a session hold is bound to. If it ends, the hold is bound to a new one. */
final class BoundConnection {
    private final HoldCommands commands;
    private final Function<DedicatedConnection, CompletableFuture<Long>> bind;
    private final BooleanSupplier isLive;
    private final BiConsumer<String, Throwable> lost;

    // Guarded by this.
    private DedicatedConnection connection;
    /**
     * Connections on which a command that binds is unanswered. If the command arrives after all, it binds the hold to
     * its own connection, whose end would release the hold. The connections therefore stay open until the hold ends. If
     * one of them ends, the hold is lost.
     */
    private final List<DedicatedConnection> late = new ArrayList<>();
    private boolean isOver;

    /**
     * {@code connection}: {@code null} if the hold is not bound. {@code bind}: binds the hold to another connection.
     * {@code isLive}: whether the hold is live. {@code lost}: called with the reason if the hold cannot be bound again.
     */
    BoundConnection(
            HoldCommands commands,
            DedicatedConnection connection,
            Function<DedicatedConnection, CompletableFuture<Long>> bind,
            BooleanSupplier isLive,
            BiConsumer<String, Throwable> lost) {
        this.commands = commands;
        this.connection = connection;
        this.bind = bind;
        this.isLive = isLive;
        this.lost = lost;
    }

    /** Starts to watch the connection. */
    void watch() {
        DedicatedConnection bound = connection();
        if (bound != null) {
            bound.whenEnded(() -> unbound(bound));
        }
    }

    /** Returns the connection, or {@code null} if there is none now. */
    synchronized DedicatedConnection connection() {
        return connection;
    }

    /** Ends the binding, and returns its connection. The caller disposes of it. */
    synchronized DedicatedConnection end() {
        DedicatedConnection bound = connection;
        connection = null;
        isOver = true;
        return bound;
    }

    /** Ends the connections to which late commands may have bound the hold, which is released or lost. */
    void leaveOthers() {
        List<DedicatedConnection> left;
        synchronized (this) {
            left = new ArrayList<>(late);
            late.clear();
        }
        left.forEach(DedicatedConnection::leave);
    }

    private void keepOpen(DedicatedConnection taken) {
        boolean isKept;
        synchronized (this) {
            isKept = !isOver;
            if (isKept) {
                late.add(taken);
            }
        }
        if (isKept) {
            taken.whenEnded(() -> endedLate(taken));
        } else {
            taken.leave();
        }
    }

    private void endedLate(DedicatedConnection ended) {
        boolean isLost;
        synchronized (this) {
            isLost = late.remove(ended);
        }
        if (isLost) {
            lost.accept("a connection ended on which a command that binds it had no answer", null);
        }
    }

    private void unbound(DedicatedConnection ended) {
        synchronized (this) {
            if (connection != ended) {
                return;
            }
            connection = null;
        }
        bindAgain(0);
    }

    /** Binds the hold to another connection. {@code before}: the number of attempts before this one. */
    private void bindAgain(int before) {
        commands.core.backend.dedicated(commands.request.first()).whenComplete((taken, failed) -> {
            if (failed != null) {
                bindLater(before, Futures.cause(failed));
                return;
            }
            CompletableFuture<Long> binding = bind.apply(taken);
            binding.whenComplete((reply, refused) -> {
                if (refused != null) {
                    if (Futures.cause(refused) instanceof Unanswered) {
                        keepOpen(taken);
                    } else {
                        taken.leave();
                    }
                    bindLater(before, Futures.cause(refused));
                } else if (reply == null) {
                    taken.leave();
                    lost.accept("its connection ended", null);
                } else {
                    bound(taken);
                }
            });
        });
    }

    private void bindLater(int before, Throwable reason) {
        if (Unanswered.mayRepeat(reason) && isLive.getAsBoolean() && !commands.core.isClosed()) {
            // The lease ends these attempts: after it, the hold is not live.
            Futures.after(Core.pauseMillis(before)).thenRun(() -> bindAgain(before + 1));
        } else {
            lost.accept("its connection ended", reason);
        }
    }

    private void bound(DedicatedConnection taken) {
        boolean isTooLate;
        synchronized (this) {
            isTooLate = isOver;
            if (!isTooLate) {
                connection = taken;
            }
        }
        if (isTooLate) {
            taken.leave();
        } else {
            taken.whenEnded(() -> unbound(taken));
        }
    }
}
