package dlock;

import java.time.Duration;

/** How long a hold lasts at most, and how long its lock stays at least, both from the grant. */
final class HoldTime {
    /** No limits. */
    static final HoldTime ANY = new HoldTime(0, 0);

    /** The longest time ({@code MAXHOLD}); 0: the hold has no cap of its own. */
    final long mostMillis;
    /** The least time, even if the hold is released earlier; 0: the lock is free after its release. */
    final long leastMillis;

    private HoldTime(long mostMillis, long leastMillis) {
        this.mostMillis = mostMillis;
        this.leastMillis = leastMillis;
        if (mostMillis > 0 && leastMillis > mostMillis) {
            throw new IllegalArgumentException(
                    "a lock that must stay for " + leastMillis + " ms cannot end after " + mostMillis + " ms");
        }
    }

    HoldTime atMost(Duration time) {
        if (time.toMillis() < Lease.SHORTEST_MILLIS) {
            throw new IllegalArgumentException(
                    "the longest time of a hold must be " + Lease.SHORTEST_MILLIS + " ms or more, not " + time);
        }
        return new HoldTime(time.toMillis(), leastMillis);
    }

    HoldTime atLeast(Duration time) {
        if (time.isNegative()) {
            throw new IllegalArgumentException("the least time of a hold must be 0 ms or more, not " + time);
        }
        return new HoldTime(mostMillis, time.toMillis());
    }
}
