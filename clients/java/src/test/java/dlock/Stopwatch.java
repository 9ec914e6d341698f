package dlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;

/** Measures how long something takes. A machine that stalls for a while does not count as late. */
final class Stopwatch {
    /** By which a wait may end after its limit. */
    private static final long LATE_MILLIS = 250;

    /** The threads and processes that an operation passes through, each of which may stall. */
    private static final long HANDS = 3;

    /** How long all threads of this machine together were late, as a thread that sleeps sees it. */
    private static volatile long stalledNanos;

    static {
        Thread metronome = new Thread(() -> {
            for (long before = System.nanoTime(); ; ) {
                try {
                    Thread.sleep(5);
                } catch (InterruptedException e) {
                    return;
                }
                long now = System.nanoTime();
                stalledNanos += Math.max(0, now - before - TimeUnit.MILLISECONDS.toNanos(6));
                before = now;
            }
        });
        metronome.setDaemon(true);
        metronome.setPriority(Thread.MAX_PRIORITY);
        metronome.start();
    }

    private final long start = System.nanoTime();
    private final long stalledBefore = stalledNanos;

    /** It ended in this time, and no more than 250 ms after it. */
    void within(long millis) {
        between(0, millis);
    }

    /** It did not end before this time, and no more than 250 ms after it. */
    void at(long millis) {
        between(millis, millis);
    }

    private void between(long least, long most) {
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        long stalled = TimeUnit.NANOSECONDS.toMillis(stalledNanos - stalledBefore);
        assertTrue(took >= least, "took " + took + " ms, less than " + least);
        assertTrue(took <= most + LATE_MILLIS + HANDS * stalled,
                "took " + took + " ms, of which the machine stalled for " + stalled + "; the limit was " + most);
    }
}
