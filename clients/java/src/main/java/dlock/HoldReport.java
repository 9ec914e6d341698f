package dlock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** Tells the listeners of a client about one hold: nothing until the program has it, then its begin and its end, once. */
final class HoldReport {
    private final Core core;
    private final List<String> names;
    private final long since = System.nanoTime();

    // Guarded by this.
    private boolean isHeld;
    /** The report of the end; {@code null} while the hold has not ended. */
    private Consumer<LockListener> end;

    HoldReport(Core core, List<String> names) {
        this.core = core;
        this.names = names;
    }

    /** The program has the hold, which may be over already. */
    void held() {
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
     * A release was sent. {@code released}: its answer, which says whether the hold lasted until then. Returns the same
     * answer, after the listeners are told.
     */
    CompletableFuture<Boolean> releasing(CompletableFuture<Boolean> released) {
        Duration held = age();
        return released.whenComplete((ok, failed) -> ends(failed == null && !ok, held));
    }

    private Duration age() {
        return Duration.ofNanos(System.nanoTime() - since);
    }

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
