package dlock;

/**
 * The length of a lease, as far as it is known, in nanoseconds. The server sets it when it executes a renewal: late if the
 * answer was lost, and in any order for renewals on several connections. So a hold counts with the shortest that the
 * server may have.
 */
final class Lengths {
    private long sure;
    /** Renewals without an answer so far, and the shortest lease since the first of them was sent. */
    private int open;
    private long shortest;

    Lengths(long nanos) {
        sure = nanos;
        shortest = nanos;
    }

    /** Returns a length such that the server has no shorter one. */
    long sure() {
        return sure;
    }

    /** A renewal is about to be sent. */
    void sends(long nanos) {
        shortest = open == 0 ? nanos : Math.min(shortest, nanos);
        open++;
        sure = Math.min(sure, nanos);
    }

    /** A renewal that was sent once has its answer. {@code executed}: and it counts. */
    void answered(boolean executed) {
        open--;
        if (executed) {
            sure = shortest;
        }
    }

    /** The server has at least this one now, if nothing shorter is on its way. */
    void raised(long nanos) {
        if (open == 0) {
            sure = Math.max(sure, nanos);
        }
    }
}
