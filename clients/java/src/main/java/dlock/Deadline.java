package dlock;

import java.util.concurrent.TimeUnit;

/** A point in time of the clock that only goes forward. */
final class Deadline {
    static final Deadline NEVER = new Deadline(0, true);

    private final long nanos;
    private final boolean never;

    private Deadline(long nanos, boolean never) {
        this.nanos = nanos;
        this.never = never;
    }

    static Deadline afterNanos(long nanos) {
        return afterNanos(System.nanoTime(), nanos);
    }

    /** Returns the deadline this long after a {@link System#nanoTime}. */
    static Deadline afterNanos(long start, long nanos) {
        // 36,500 days are longer than a server waits, and far from an overflow.
        return nanos > TimeUnit.DAYS.toNanos(36500) ? NEVER : new Deadline(start + Math.max(0, nanos), false);
    }

    static Deadline afterMillis(long millis) {
        return afterNanos(TimeUnit.MILLISECONDS.toNanos(millis));
    }

    /** Returns the deadline this long after a {@link System#nanoTime}. */
    static Deadline after(long start, long millis) {
        return millis > TimeUnit.DAYS.toMillis(36500)
                ? NEVER
                : new Deadline(start + TimeUnit.MILLISECONDS.toNanos(millis), false);
    }

    /** Returns this deadline, later by so much. */
    Deadline plusMillis(long millis) {
        return never ? NEVER : after(nanos, millis);
    }

    boolean isNever() {
        return never;
    }

    boolean hasPassed() {
        return hasPassed(System.nanoTime());
    }

    boolean hasPassed(long now) {
        return !never && leftNanos(now) == 0;
    }

    /** How much time is left, never negative. */
    long leftNanos() {
        return leftNanos(System.nanoTime());
    }

    private long leftNanos(long now) {
        return never ? Long.MAX_VALUE : Math.max(0, nanos - now);
    }

    long leftMillis() {
        return leftMillis(System.nanoTime());
    }

    /** The milliseconds that are left, rounded up. */
    long leftMillis(long now) {
        long left = leftNanos(now);
        return never ? Long.MAX_VALUE : left / 1_000_000 + (left % 1_000_000 == 0 ? 0 : 1);
    }

    /** Returns the argument of {@code BLOCK}: 0 if it never passes, {@code NOT_AT_ALL} if it has passed. */
    long block() {
        return never ? 0 : hasPassed() ? DedicatedConnection.NOT_AT_ALL : leftMillis();
    }
}
