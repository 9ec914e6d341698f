package dlock;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The timer of a client runs each task at its time, whatever comes before or is canceled. */
final class TimerTest {
    private static final long MILLIS = TimeUnit.MILLISECONDS.toNanos(1);

    private final Timer timer = new Timer("test");
    private final BlockingQueue<String> ran = new LinkedBlockingQueue<>();

    @AfterEach
    void shutDown() {
        timer.shutdown();
    }

    private Timer.Task after(long millis, String what) {
        return timer.schedule(() -> ran.add(what), millis * MILLIS);
    }

    private String next() throws InterruptedException {
        return ran.poll(20, TimeUnit.SECONDS);
    }

    @Test
    void tasks_run_in_the_order_of_their_times_and_not_before() throws InterruptedException {
        // A busy machine may stop this thread between two calls, which changes the order: the tasks are scheduled again.
        for (boolean isInOrder = false; !isInOrder; ) {
            long began = System.nanoTime();
            after(90, "third");
            after(30, "first");
            after(60, "second");
            after(60, "second too");
            isInOrder = System.nanoTime() - began < 30 * MILLIS;
            List<String> order = List.of(next(), next(), next(), next());
            assertTrue(System.nanoTime() - began >= 90 * MILLIS);
            if (isInOrder) {
                assertEquals(List.of("first", "second", "second too", "third"), order);
            }
        }
    }

    @Test
    void a_task_that_is_due_earlier_wakes_a_timer_that_sleeps() throws InterruptedException {
        after(60_000, "late");
        Thread.sleep(50);
        after(0, "now");
        assertEquals("now", next());
        after(Long.MAX_VALUE / MILLIS, "never");
        after(-5, "at once");
        assertEquals("at once", next());
    }

    @Test
    void a_task_runs_after_the_timer_slept_for_one_that_was_canceled() throws InterruptedException {
        Timer.Task canceled = after(2000, "canceled");
        Thread.sleep(50);
        canceled.cancel();
        after(2100, "next");
        assertEquals("next", next());
        after(10, "last");
        assertEquals("last", next());
    }

    @Test
    void a_task_that_fails_ends_nothing_and_none_runs_after_the_shutdown() throws InterruptedException {
        List<Throwable> told = new ArrayList<>();
        timer.schedule(() -> {
            Thread.currentThread().setUncaughtExceptionHandler((thread, failure) -> told.add(failure));
            throw new IllegalStateException("as expected");
        }, 0);
        after(1, "after it");
        assertEquals("after it", next());
        assertEquals(1, told.size());
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch shutDown = new CountDownLatch(1);
        timer.schedule(() -> {
            begun.countDown();
            assertDoesNotThrow(() -> shutDown.await());
        }, 0);
        begun.await();
        after(0, "before the shutdown");
        timer.shutdown();
        after(0, "after the shutdown");
        shutDown.countDown();
        assertNull(ran.poll(100, TimeUnit.MILLISECONDS));
    }

    @Test
    void a_limit_runs_at_its_time_or_at_the_shutdown_or_at_once_after_it() throws InterruptedException {
        timer.limit(() -> ran.add("in time"), 0);
        assertEquals("in time", next());
        timer.limit(() -> ran.add("at the shutdown"), Long.MAX_VALUE);
        timer.limit(() -> ran.add("canceled"), Long.MAX_VALUE).cancel();
        after(60_000, "no limit");
        timer.shutdown();
        timer.limit(() -> ran.add("after it"), Long.MAX_VALUE);
        assertEquals(List.of("at the shutdown", "after it"), List.copyOf(ran));
    }
}
