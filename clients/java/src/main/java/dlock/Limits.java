package dlock;

import java.time.Duration;

/**
 * The time that an acquisition may take: the end of its wait for the lock, and the time at which it gives up because no
 * server answers. All times {@code now} are of one monotonic clock, in nanoseconds.
 */
final class Limits {
    /** The time that a server has to answer a request that does not wait. */
    static final long TRY_MILLIS = 1000;
    /** The time that a server has to say that a wait has ended. */
    private static final long ANSWER_MILLIS = 120;
    /** How late {@code WAIT} may end: a server looks ten times a second ({@code hz}) which waits are over. */
    private static final long ENDS_LATE_MILLIS = 100;
    /** The least time that replicas have to acknowledge the grant. */
    private static final long LAST_MILLIS = 40;

    /** The end of the wait. */
    final Deadline end;
    /** The time at which a wait with an end gives up. */
    private final Deadline giveUp;
    /** The time in which a server has to answer. */
    private final long millis;
    /** Whether it does not wait for the lock. */
    private final boolean isTry;

    // Guarded by this.
    /** The last time at which a server is known to have answered; first, the start. */
    private long answered;

    private Limits(Deadline end, Deadline giveUp, long millis, boolean isTry, long now) {
        this.end = end;
        this.giveUp = giveUp;
        this.millis = millis;
        this.isTry = isTry;
        this.answered = now;
    }

    /** Waits without an end, for as long as a server answers. */
    static Limits none(long patienceMillis, long now) {
        return new Limits(Deadline.NEVER, Deadline.NEVER, patienceMillis, false, now);
    }

    /**
     * Waits this long for the lock. Zero or less: does not wait, and gives a server {@code tryMillis} to answer. A time
     * without an end: waits with this patience.
     */
    static Limits of(long nanos, long patienceMillis, long tryMillis, long now) {
        Deadline end = Deadline.afterNanos(now, nanos);
        if (end.isNever()) {
            return none(patienceMillis, now);
        }
        return nanos > 0
                ? new Limits(end, end.plusMillis(ANSWER_MILLIS), end.leftMillis(now), false, now)
                : new Limits(end, Deadline.after(now, tryMillis), tryMillis, true, now);
    }

    static Limits of(Duration wait, long patienceMillis, long tryMillis, long now) {
        try {
            return of(wait.toNanos(), patienceMillis, tryMillis, now);
        } catch (ArithmeticException e) {
            return wait.isNegative() ? of(0, patienceMillis, tryMillis, now) : none(patienceMillis, now);
        }
    }

    boolean isTry() {
        return isTry;
    }

    boolean isEndless() {
        return end.isNever();
    }

    /** Returns whether the request may be sent again. */
    boolean isLeft(long now) {
        return !(isTry ? giveUp : end).hasPassed(now);
    }

    /** Returns what {@code BLOCK} is given: the ms that are left, at least 1; 0 without an end. */
    long block(long now) {
        return end.isNever() ? 0 : Math.max(1, end.leftMillis(now));
    }

    /** Notes that a server answered at this time. */
    synchronized void heard(long when) {
        answered = Validity.later(when, answered);
    }

    /** Returns the time at which the acquisition gives up, unless a server answers before. */
    synchronized Deadline giveUp() {
        return end.isNever() ? Deadline.after(answered, millis) : giveUp;
    }

    /**
     * Returns the time at which it is over. A server that has the request gets the time to answer. If none has it, the end
     * of the wait is the end.
     */
    Deadline over(boolean hasServer) {
        return end.isNever() || isTry || hasServer ? giveUp() : end;
    }

    /** Returns the period in which the client must find out whether the server answers. */
    long hearMillis() {
        return end.isNever() ? Math.max(1, millis / 4) : Long.MAX_VALUE;
    }

    /**
     * Returns the time that replicas have: the wanted one, or a shorter one, so that the server can answer before the
     * acquisition gives up.
     */
    long cut(long wanted, long now) {
        long left = Math.max(LAST_MILLIS, giveUp.leftMillis(now) - ANSWER_MILLIS - ENDS_LATE_MILLIS);
        return end.isNever() ? wanted : Math.min(wanted, left);
    }

    /** Returns the failure of an acquisition that gives up. */
    Unanswered silence() {
        return new Unanswered("no server answered within " + millis + " ms", null);
    }
}
