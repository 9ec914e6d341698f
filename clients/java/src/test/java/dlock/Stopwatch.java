package dlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** Measures how long something takes. A machine that stalls for a while does not count as late. */
final class Stopwatch {
    /** How long after its limit a wait may end. */
    private static final long LATE_MILLIS = 250;

    /** The threads and processes that an operation passes through, each of which may stall. */
    private static final long HANDS = 3;

    /** How long this process has stalled so far: the sum of the times by which a thread that sleeps woke up late. */
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
    private final long waitedBefore = waitedForACoreMillis();

    /** For how long some process of this machine was ready to run and had no core, so far. Without pressure files: 0. */
    private static long waitedForACoreMillis() {
        try {
            String some = Files.readAllLines(Path.of("/proc/pressure/cpu")).get(0);
            return Long.parseLong(some.substring(some.lastIndexOf('=') + 1)) / 1000;
        } catch (IOException e) {
            return 0;
        }
    }

    /** Asserts that it ended in this time, or at most 250 ms later. */
    void within(long millis) {
        between(0, millis);
    }

    /** Asserts that it ended at this time, or at most 250 ms later. */
    void at(long millis) {
        between(millis, millis);
    }

    private void between(long least, long most) {
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        try {
            Thread.sleep(20); // The metronome may be late itself, and count the last stall only now.
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
