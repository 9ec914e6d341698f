package dlock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * At most one run in each period, on all machines together. The lock is the memory of the run: it stays for a part of
 * the period, counted from the grant. No machine's time of day counts, only the server's.
 */
final class Once {
    /** The shortest period. A start takes a moment. */
    private static final long SHORTEST_MILLIS = 1000;
    /** The pause between two attempts to reach the server after the work. */
    private static final long PAUSE_MILLIS = 200;

    private Once() {}

    /**
     * Returns how long the lock of a run stays: nine tenths of the period. The next start may come early by the rest:
     * clocks differ, the last start was late on a busy machine, or the day had 23 hours.
     */
    static Duration keptFor(Duration period) {
        if (period.toMillis() < SHORTEST_MILLIS) {
            throw new IllegalArgumentException("a period must be 1 s or longer, not " + period);
        }
        return Duration.ofMillis(period.toMillis() / 10 * 9);
    }

    /**
     * A run that counts even if it fails, or dies with its program.
     *
     * @param lock stays for {@link #keptFor} at least
     */
    static boolean atAll(DLock lock, Consumer<? super Hold> work) throws InterruptedException {
        Optional<Hold> granted = lock.tryAcquire(Duration.ZERO);
        if (granted.isEmpty()) {
            return false;
        }
        Hold hold = granted.get();
        try {
            work.accept(hold);
        } catch (Throwable e) {
            // Work in another language of the JVM may throw checked exceptions, which the interface does not declare.
            end(hold, e);
            throw e;
        }
        checkHeld(hold);
        end(hold, null);
        return true;
    }

    /**
     * A run that counts only if it succeeds.
     *
     * @param lock has a lease of {@code stays}: its grant shows that the server allows such a lease
     * @param lease the lease while the work runs
     */
    static boolean inSuccess(DLock lock, Duration stays, Duration lease, Consumer<? super Hold> work)
            throws InterruptedException {
        Optional<Hold> granted = lock.tryAcquire(Duration.ZERO);
        if (granted.isEmpty()) {
            return false;
        }
        Hold hold = granted.get();
        long began = System.nanoTime();
        try {
            // Without an answer, the longer lease is renewed.
            answered(hold, lease);
            work.accept(hold);
            checkHeld(hold);
            // While no server answers, the lease is tried again: the success must not be forgotten. It is as long as
            // the lock stays, or longer, because the server may execute a try without an answer later.
            while (!answered(hold, max(stays.minusNanos(System.nanoTime() - began), lease))) {
                Thread.sleep(PAUSE_MILLIS);
            }
            if (hold.isRenewalOpen()) {
                // An earlier renewal by the shorter lease may still be executed.
                Thread.sleep(Math.min(Releases.SEES_AN_END_MILLIS[1], hold.remaining().toMillis() / 2));
            }
        } catch (Throwable e) {
            end(hold, e);
            throw e;
        }
        long left = stays.toNanos() - (System.nanoTime() - began);
        if (!Futures.join(hold.releaseIn(Math.max(1, TimeUnit.NANOSECONDS.toMillis(left) + 1)))) {
            throw hold.lostOr("lost before its end");
        }
        return true;
    }

    private static Duration max(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? other : one;
    }

    private static boolean answered(Hold hold, Duration lease) {
        try {
            hold.extend(lease);
            return true;
        } catch (UnavailableException e) {
            return false;
        }
    }

    private static void checkHeld(Hold hold) {
        if (!hold.isLive()) {
            throw hold.lostOr("lost while the work ran");
        }
    }

    /** Releases the hold, which may have to stay for a least time. Without an answer, its lease goes on. */
    private static void end(Hold hold, Throwable why) {
        try {
            hold.close();
        } catch (RuntimeException e) {
            if (why != null) {
                why.addSuppressed(e);
            }
        }
    }
}
