package dlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** Measures how long an operation takes. The time for which the machine stalls does not count. */
final class Stopwatch {
    /** How long after its limit a wait may end: see docs/time-limits.md. */
    private static final long LATE_MILLIS = 250;

    /** The number of threads and processes that an operation passes through: each of them may stall. */
    private static final long HANDS = 3;

    /** How long this process has stalled so far: the sum of the times by which the sleeping metronome woke up late. */
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
                // A sleep of 5 ms that ends up to 1 ms late is no stall.
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
    private final long waitedBefore = waitedForACoreMillis();

    /** Returns for how long processes of this machine have waited for a core so far; 0 if the system does not tell. */
    private static long waitedForACoreMillis() {
        try {
            // The first line is that of `some`: at least one process waited. It ends with the total in microseconds.
            String some = Files.readAllLines(Path.of("/proc/pressure/cpu")).get(0);
            return Long.parseLong(some.substring(some.lastIndexOf('=') + 1)) / 1000;
        } catch (IOException e) {
            return 0;
        }
    }

    /** Asserts that the operation took no longer than this, and {@link #LATE_MILLIS}. */
    void within(long millis) {
        between(0, millis);
    }

    /** Asserts that the operation took this long, or up to {@link #LATE_MILLIS} longer. */
    void at(long millis) {
        between(millis, millis);
    }

    private void between(long least, long most) {
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        try {
            Thread.sleep(20); // The metronome counts the last stall when it wakes up.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        long stalled = TimeUnit.NANOSECONDS.toMillis(stalledNanos - stalledBefore);
        assertTrue(took >= least, "took " + took + " ms, less than " + least);
        long waited = waitedForACoreMillis() - waitedBefore;
        assertTrue(took <= most + LATE_MILLIS + HANDS * stalled + waited, "took " + took + " ms, of which this process"
                + " stalled for " + stalled + " and others waited for a core for " + waited + "; the limit was " + most);
    }
}
