package dlock;

import java.time.Duration;
import java.util.List;

/** Tells the listeners of a client about one request: its begin, and its outcome, once. */
final class RequestReport {
    private final Core core;
    private final List<String> names;
    private final long since = System.nanoTime();
    /** Guarded by this. */
    private boolean isOver;

    RequestReport(Core core, List<String> names) {
        this.core = core;
        this.names = names;
    }

    void begin() {
        core.report(listener -> listener.requested(names));
    }

    /** Returns false if it had another outcome before. */
    boolean end(LockListener.Outcome outcome) {
        synchronized (this) {
            if (isOver) {
                return false;
            }
            isOver = true;
        }
        Duration waited = Duration.ofNanos(System.nanoTime() - since);
        core.report(listener -> listener.answered(names, outcome, waited));
        return true;
    }
}
