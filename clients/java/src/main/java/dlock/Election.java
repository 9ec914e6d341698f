package dlock;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Leader election: of all programs that take part in the election of one name, one at a time is the leader. A leader
 * that hangs may overlap with the next one: pass {@link Hold#fencingToken} to whatever the leader writes to.
 */
public final class Election implements AutoCloseable {
    /** The pause before the lock is requested again after a failure. */
    private static final long PAUSE_MILLIS = 1000;

    private final DLockClient client;
    private final DLock lock;
    private final Core core;
    private final Consumer<? super Hold> started;
    private final Consumer<? super Hold> stopped;

    // Guarded by this, except telling.
    /** Completes when the closed election has ended; {@code null}: not closed. */
    private CompletableFuture<Void> ending;
    /** The last request for the lock; {@code null}: none, because the client was closed before. */
    private CompletableFuture<Hold> campaign;
    /** The hold of the leader that this program is, or {@code null}. */
    private Hold term;
    /** Completes when every listener that was called, or will be called, has returned. */
    private CompletableFuture<Void> told = CompletableFuture.completedFuture(null);
    /** The thread in which a listener runs now, or {@code null}. */
    private volatile Thread telling;

    Election(
            DLockClient client,
            Core core,
            DLock lock,
            Consumer<? super Hold> started,
            Consumer<? super Hold> stopped) {
        this.client = client;
        this.core = core;
        this.lock = lock;
        this.started = started;
        this.stopped = stopped;
    }

    Election start() {
        core.checkOpen();
        core.keep(this);
        campaign();
        return this;
    }

    /** Returns whether this program is the leader, as far as it knows. */
    public synchronized boolean isLeader() {
        return term != null && term.isHeld();
    }

    /** Asks the server for the present leader; empty if there is none. */
    public Optional<Holder> leader() {
        return client.holder(lock.names().get(0));
    }

    /**
     * Ends the election. If this program is the leader, tells the listener for the end of a term, and then releases the
     * lock. Called by a listener, returns at once: the rest follows when that listener has returned.
     */
    @Override
    public void close() {
        CompletableFuture<Void> ended = end();
        if (Thread.currentThread() != telling) {
            Futures.join(ended);
        }
    }

    /** Closes without waiting. Completes when the lock is released, also for a caller that is not the first. */
    CompletableFuture<Void> end() {
        CompletableFuture<Void> done = new CompletableFuture<>();
        CompletableFuture<Hold> left;
        Hold ended;
        synchronized (this) {
            if (ending != null) {
                return ending;
            }
            ending = done;
            left = campaign;
            ended = term;
            term = null;
        }
        core.forget(this);
        if (left != null) {
            left.cancel(false);
        }
        if (ended == null) {
            done.complete(null);
        } else {
            tell(stopped, ended)
                    .thenCompose(told -> ended.releaseAsync())
                    .whenComplete((released, failed) -> done.complete(null));
        }
        return done;
    }

    /** Requests the lock, and again after a failure. */
    private void campaign() {
        CompletableFuture<Hold> next;
        synchronized (this) {
            if (ending != null || core.isClosing()) {
                return;
            }
            campaign = next = lock.acquireAsync();
        }
        next.whenComplete((hold, failed) -> {
            if (failed == null) {
                lead(hold);
            } else {
                Futures.after(PAUSE_MILLIS).thenRun(this::campaign);
            }
        });
    }

    /** Begins a term. When its hold is lost, ends the term and requests the lock again. */
    private void lead(Hold hold) {
        if (!begins(hold)) {
            hold.releaseAsync();
            return;
        }
        hold.onLost(loss -> {
            synchronized (this) {
                if (term != hold) {
                    return;
                }
                term = null;
            }
            tell(stopped, hold).thenRun(this::campaign);
        });
    }

    /** Begins a term and returns true. If the election is closed, returns false, and the caller releases the lock. */
    private synchronized boolean begins(Hold hold) {
        if (ending != null) {
            return false;
        }
        term = hold;
        tell(started, hold);
        return true;
    }

    /** Calls a listener after the one before has returned. The result completes when this one has returned. */
    private synchronized CompletableFuture<Void> tell(Consumer<? super Hold> listener, Hold hold) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        told = told.thenCompose(before -> {
            core.tell(() -> {
                telling = Thread.currentThread();
                try {
                    listener.accept(hold);
                } finally {
                    telling = null;
                    done.complete(null);
                }
            });
            return done;
        });
        return told;
    }
}
