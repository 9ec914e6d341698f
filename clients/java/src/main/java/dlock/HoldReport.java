package dlock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Tells the listeners of a client about one hold: of the begin when the program gets the hold, then of the end, once.
 * An end before the begin is kept until the begin is reported.
 */
final class HoldReport {
    private final Core core;
    private final List<String> names;
    /** When the grant arrived. The times that listeners get count from then. */
    private final long since = System.nanoTime();

    // Guarded by this.
    /** Whether the begin was reported. */
    private boolean isHeld;
    /** The report of the end; {@code null} while the hold has not ended. */
    private Consumer<LockListener> end;

    HoldReport(Core core, List<String> names) {
        this.core = core;
        this.names = names;
    }

    /** Reports the begin. If the hold is over already, reports the end as well. */
    void held() {
        // Reported before isHeld is set, so that no other thread reports the end first.
        core.report(listener -> listener.held(names));
        Consumer<LockListener> over;
        synchronized (this) {
            isHeld = true;
            over = end;
        }
        if (over != null) {
            core.report(over);
        }
    }

    void released() {
        ends(false, age());
    }

    void lost() {
        ends(true, age());
    }

    /**
     * Reports the end when a release is answered. {@code released}: the answer, which says whether the hold lasted
     * until then; a failure counts as yes. The result is the same answer, and completes after the listeners are told.
     */
    CompletableFuture<Boolean> releasing(CompletableFuture<Boolean> released) {
        Duration held = age();
        return released.whenComplete((ok, failed) -> ends(failed == null && !ok, held));
    }

    private Duration age() {
        return Duration.ofNanos(System.nanoTime() - since);
    }

    /** Reports the end, unless the begin is not reported yet. Does nothing after the first call. */
    private void ends(boolean isLost, Duration held) {
        synchronized (this) {
            if (end != null) {
                return;
            }
            end = isLost ? listener -> listener.lost(names, held) : listener -> listener.released(names, held);
            if (!isHeld) {
                return;
            }
        }
        core.report(end);
    }
}
