package dlock;

import java.time.Duration;

/** How long a hold lasts at most, and how long it stays at least, from its grant. */
final class HoldTime {
    static final HoldTime ANY = new HoldTime(0, 0);

    /** {@code MAXHOLD}; 0: no cap of its own. */
    final long mostMillis;
    /** 0: it ends with its release. */
    final long leastMillis;

    private HoldTime(long mostMillis, long leastMillis) {
        this.mostMillis = mostMillis;
        this.leastMillis = leastMillis;
        if (mostMillis > 0 && leastMillis > mostMillis) {
            throw new IllegalArgumentException(
                    "a lock that stays at least " + leastMillis + " ms, but at most " + mostMillis);
        }
    }

    HoldTime atMost(Duration time) {
        if (time.toMillis() < Lease.SHORTEST_MILLIS) {
            throw new IllegalArgumentException(
                    "the longest time of a hold is " + Lease.SHORTEST_MILLIS + " ms or more, not " + time);
        }
        return new HoldTime(time.toMillis(), leastMillis);
    }

    HoldTime atLeast(Duration time) {
        if (time.isNegative()) {
            throw new IllegalArgumentException("the least time of a hold is 0 ms or more, not " + time);
        }
        return new HoldTime(mostMillis, time.toMillis());
    }
}
