package dlock;

import java.time.Duration;

/**
 * The time that an acquisition may take: the end of its wait for the lock, and the time at which it gives up because no
 * server answers.
 */
final class Limit {
    /** The time that a server has to answer a request that does not wait. */
    private static final long TRY_MILLIS = 1000;
    /** The time that a server has to say that a wait has ended. */
    private static final long ANSWER_MILLIS = 120;

    /** The end of the wait. */
    final Deadline end;
    /** The time at which a wait with an end gives up. */
    private final Deadline giveUp;
    /** The time in which a server has to answer. */
    private final long millis;
    /** Whether it does not wait for the lock. */
    private final boolean isTry;

    // Guarded by this.
    /** The last time at which a server is known to have answered, by {@link System#nanoTime}; first, the start. */
    private long answered = System.nanoTime();

    private Limit(Deadline end, Deadline giveUp, long millis, boolean isTry) {
        this.end = end;
        this.giveUp = giveUp;
        this.millis = millis;
        this.isTry = isTry;
    }

    /** Waits without an end, for as long as a server answers. */
    static Limit none(long patienceMillis) {
        return new Limit(Deadline.NEVER, Deadline.NEVER, patienceMillis, false);
    }

    /** Waits this long for the lock. Zero or less: does not wait. {@code none}: for a time that never ends. */
    static Limit of(long nanos, Limit none) {
        Deadline end = Deadline.afterNanos(nanos);
        if (end.isNever()) {
            return none;
        }
        return nanos > 0
                ? new Limit(end, end.plusMillis(ANSWER_MILLIS), end.leftMillis(), false)
                : new Limit(end, Deadline.afterMillis(TRY_MILLIS), TRY_MILLIS, true);
    }

    static Limit of(Duration wait, Limit none) {
        try {
            return of(wait.toNanos(), none);
        } catch (ArithmeticException e) {
            return wait.isNegative() ? of(0, none) : none;
        }
    }

    /** Notes that a server answered at this time. */
    synchronized void heard(long nanos) {
        answered = Math.max(nanos - answered, 0) + answered;
    }

    /** Returns the time at which the acquisition gives up, unless a server answers before. */
    synchronized Deadline giveUp() {
        return end.isNever() ? Deadline.after(answered, millis) : giveUp;
    }

    /** The same, if no server has the request. */
    Deadline giveUpWithoutServer() {
        return end.isNever() || isTry ? giveUp() : end;
    }

    /** Returns how often it has to be known whether the server answers. */
    long hearMillis() {
        return end.isNever() ? Math.max(1, millis / 4) : Long.MAX_VALUE;
    }

    /** Returns the same patience, without waiting for the lock. */
    Limit atOnce() {
        return new Limit(Deadline.afterMillis(0), giveUp(), millis, true);
    }

    /** Returns this time, or the shorter one that is left for something that follows the grant. */
    long cut(long wanted) {
        return end.isNever() ? wanted : Math.min(wanted, Math.max(1, giveUp.leftMillis() - ANSWER_MILLIS / 3));
    }

    /** Returns the failure of an acquisition that gives up. */
    Unanswered silence() {
        return new Unanswered("no server answered within " + millis + " ms", null);
    }
}
