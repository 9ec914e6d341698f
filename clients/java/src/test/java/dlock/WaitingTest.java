package dlock;

import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Waiting: in order, and given up without a trace. */
final class WaitingTest {
    private static final int RACES = 200;

    private static TestServer server;
    private static DLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        client = server.client();
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    @Test
    void an_interrupted_wait_has_left_the_queue() throws Exception {
        DLock lock = client.lock("interrupted");
        Hold hold = lock.acquire();
        for (ThrowingRunnable wait : List.<ThrowingRunnable>of(
                lock::lockInterruptibly,
                () -> lock.tryLock(1, TimeUnit.HOURS),
                lock::acquire,
                () -> lock.tryAcquire(Duration.ofHours(1)))) {
            AtomicReference<Object> outcome = new AtomicReference<>();
            Thread thread = new Thread(() -> {
                try {
                    wait.run();
                } catch (InterruptedException e) {
                    outcome.set("interrupted");
                } catch (Exception e) {
                    outcome.set(e);
                }
            });
            thread.start();
            server.untilWaiting("interrupted", 1);
            thread.interrupt();
            thread.join(20_000);
            assertEquals("interrupted", outcome.get());
            server.untilWaiting("interrupted", 0);
        }
        hold.release();
        assertTrue(server.isFree("interrupted"));
    }

    @Test
    void a_thread_that_is_interrupted_before_does_not_ask() throws Exception {
        DLock lock = client.lock("before");
        long asked = server.calls("racquire");
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
        assertFalse(Thread.interrupted());
        // Long enough for a command.
        Thread.sleep(200);
        assertEquals(asked, server.calls("racquire"));
        assertTrue(server.isFree("before"));
    }

    @Test
    void lock_waits_on_and_keeps_the_interrupt() throws Exception {
        DLock lock = client.lock("uninterruptible");
        Hold hold = lock.acquire();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            lock.lock();
            interrupted.complete(Thread.interrupted());
            lock.unlock();
        });
        thread.start();
        server.untilWaiting("uninterruptible", 1);
        thread.interrupt();
        Thread.sleep(100);
        assertEquals(1, server.waiters("uninterruptible"));
        hold.release();
        assertTrue(interrupted.get(20, TimeUnit.SECONDS));
        thread.join();
    }

    /** The interrupt comes shortly before the grant, at the same time, or shortly after it. */
    @Test
    void two_hundred_races_of_interrupt_against_grant_leave_no_hold() throws Exception {
        race(client.lock("race"), "race");
    }

    @Test
    void two_hundred_races_for_a_session_leave_no_hold() throws Exception {
        race(client.lock("race:session").withLease(Lease.session(Duration.ofSeconds(30))), "race:session");
    }

    private static void race(DLock lock, String name) throws Exception {
        AtomicInteger granted = new AtomicInteger();
        AtomicInteger interrupted = new AtomicInteger();
        for (int round = 0; round < RACES; round++) {
            Hold hold = lock.acquire();
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Thread thread = new Thread(() -> {
                try {
                    lock.lockInterruptibly();
                    granted.incrementAndGet();
                    lock.unlock();
                } catch (InterruptedException e) {
                    interrupted.incrementAndGet();
                } catch (Throwable e) {
                    failure.set(e);
                }
            });
            thread.start();
            server.untilWaiting(name, 1);
            // In ns: from 0 to about a millisecond.
            long delay = (round % 40) * 25_000L;
            if (round % 2 == 0) {
                CompletableFuture<Boolean> released = hold.releaseAsync();
                spin(delay);
                if (round % 20 == 0) {
                    // Some requests are granted, however busy the machine is: this one is interrupted after its grant.
                    thread.join(20_000);
                }
                thread.interrupt();
                released.join();
            } else {
                thread.interrupt();
                spin(delay);
                hold.release();
            }
            thread.join(20_000);
            assertFalse(thread.isAlive());
            assertEquals(null, failure.get());
            soon("nothing is left of round " + round, () -> server.isFree(name));
        }
        System.out.println(name + ": " + granted + " granted, " + interrupted + " interrupted");
        assertEquals(RACES, granted.get() + interrupted.get());
        assertTrue(granted.get() > 0 && interrupted.get() > 0, granted + " granted, " + interrupted + " interrupted");
    }

    private static void spin(long nanos) {
        for (long end = System.nanoTime() + nanos; System.nanoTime() < end; ) {
            Thread.onSpinWait();
        }
    }

    @Test
    void five_hundred_platform_threads_are_served_in_order() throws Exception {
        order("order:platform", 500, run -> new Thread(run).start());
    }

    @Test
    @Tag("virtual-threads")
    void two_thousand_virtual_threads_are_served_in_order() throws Exception {
        Consumer<Runnable> start = virtualThreads();
        Skip.unless(start != null, "two_thousand_virtual_threads_are_served_in_order",
                "Java " + Runtime.version().feature() + " has no virtual threads");
        order("order:virtual", 2000, start);
    }

    /**
     * Returns {@code Thread.startVirtualThread}, found at run time because the tests are compiled for a Java without
     * it; {@code null} on such a Java.
     */
    private static Consumer<Runnable> virtualThreads() {
        try {
            java.lang.reflect.Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
            return run -> {
                try {
                    start.invoke(null, run);
                } catch (ReflectiveOperationException e) {
                    throw new AssertionError(e);
                }
            };
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    private static void order(String name, int threads, Consumer<Runnable> start) throws Exception {
        DLock lock = client.lock(name);
        List<Integer> served = Collections.synchronizedList(new ArrayList<>());
        List<Long> tokens = Collections.synchronizedList(new ArrayList<>());
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        try (Hold hold = lock.acquire()) {
            for (int i = 0; i < threads; i++) {
                int number = i;
                start.accept(() -> {
                    try {
                        lock.lock();
                        served.add(number);
                        tokens.add(lock.fencingToken());
                        lock.unlock();
                    } catch (Throwable e) {
                        failures.add(e);
                    }
                });
                server.untilWaiting(name, i + 1);
            }
            assertEquals(List.of(), served);
        }
        soon("all are served", () -> served.size() == threads || !failures.isEmpty());
        assertEquals(List.of(), failures);
        assertEquals(IntStream.range(0, threads).boxed().collect(Collectors.toList()), served);
        assertEquals(tokens.stream().sorted().collect(Collectors.toList()), tokens);
        soon("the last thread has unlocked the lock", () -> server.isFree(name));
    }

    @Test
    void an_asynchronous_acquisition_waits_without_a_thread() throws Exception {
        // Other test classes start threads, too, so the threads of this client are in a group of their own.
        ThreadGroup group = new ThreadGroup("asynchronous");
        CompletableFuture<Void> tested = new CompletableFuture<>();
        new Thread(group, () -> {
            try {
                waitsWithoutThreads(group);
                tested.complete(null);
            } catch (Throwable e) {
                tested.completeExceptionally(e);
            }
        }).start();
        tested.get(60, TimeUnit.SECONDS);
    }

    private static void waitsWithoutThreads(ThreadGroup group) throws Exception {
        try (DLockClient own = server.client()) {
            DLock lock = own.lock("async");
            Hold hold = lock.acquire();
            List<CompletableFuture<Hold>> waiting = new ArrayList<>();
            int before = group.activeCount();
            for (int i = 0; i < 50; i++) {
                waiting.add(lock.acquireAsync());
                server.untilWaiting("async", i + 1);
            }
            // A few threads look up the host name of the server.
            assertTrue(group.activeCount() - before < 25, group.activeCount() + " threads, before " + before);
            hold.release();
            long last = hold.fencingToken();
            for (CompletableFuture<Hold> each : waiting) {
                Hold next = each.get(20, TimeUnit.SECONDS);
                assertTrue(next.fencingToken() > last);
                last = next.fencingToken();
                assertTrue(next.releaseAsync().get(20, TimeUnit.SECONDS));
            }
        }
    }

    @Test
    void a_cancelled_acquisition_leaves_the_queue() throws Exception {
        DLock lock = client.lock("cancel");
        Hold hold = lock.acquire();
        CompletableFuture<Hold> cancelled = lock.acquireAsync();
        CompletableFuture<Hold> late = lock.acquireAsync();
        CompletableFuture<Optional<Hold>> timed = lock.tryAcquireAsync(Duration.ofHours(1));
        server.untilWaiting("cancel", 3);
        cancelled.cancel(true);
        assertThrows(CancellationException.class, cancelled::join);
        server.untilWaiting("cancel", 2);
        late.orTimeout(1, TimeUnit.MILLISECONDS);
        ExecutionException failure = assertThrows(ExecutionException.class, () -> late.get(20, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof TimeoutException);
        server.untilWaiting("cancel", 1);
        timed.cancel(false);
        server.untilWaiting("cancel", 0);
        hold.release();
        assertTrue(server.isFree("cancel"));
    }

    @Test
    void an_acquisition_that_is_completed_from_outside_leaves_the_queue() throws Exception {
        DLock lock = client.lock("completed");
        Hold hold = lock.acquire();
        CompletableFuture<Hold> late = lock.acquireAsync();
        CompletableFuture<Hold> completed = lock.acquireAsync();
        CompletableFuture<Optional<Hold>> timedLate = lock.tryAcquireAsync(Duration.ofHours(1));
        CompletableFuture<Optional<Hold>> timed = lock.tryAcquireAsync(Duration.ofHours(1));
        server.untilWaiting("completed", 4);
        late.completeOnTimeout(null, 1, TimeUnit.MILLISECONDS);
        server.untilWaiting("completed", 3);
        assertTrue(completed.complete(null));
        server.untilWaiting("completed", 2);
        timedLate.completeOnTimeout(Optional.empty(), 1, TimeUnit.MILLISECONDS);
        server.untilWaiting("completed", 1);
        assertTrue(timed.complete(null));
        server.untilWaiting("completed", 0);
        assertTrue(hold.isHeld());
        hold.release();
        assertTrue(server.isFree("completed"));
    }

    @Test
    void an_acquisition_of_permits_that_is_completed_from_outside_leaves_the_queue() throws Exception {
        DSemaphore pool = client.semaphore("completed:permits", 1);
        Hold hold = pool.acquireAsync(1).get(20, TimeUnit.SECONDS);
        CompletableFuture<Hold> waiting = pool.acquireAsync(1);
        server.untilWaiting("completed:permits", 1);
        waiting.completeOnTimeout(null, 1, TimeUnit.MILLISECONDS);
        server.untilWaiting("completed:permits", 0);
        hold.release();
        assertTrue(server.isFree("completed:permits"));
    }

    @Test
    void a_timed_asynchronous_acquisition_is_empty_when_its_time_is_over() throws Exception {
        DLock lock = client.lock("asynctimed");
        Hold hold = lock.acquire();
        refused(() -> TestServer.joined(lock.tryAcquireAsync(Duration.ofMillis(50))));
        refused(() -> TestServer.joined(lock.tryAcquireAsync(Duration.ZERO)));
        hold.release();
        lock.tryAcquireAsync(Duration.ZERO).get(20, TimeUnit.SECONDS).orElseThrow().release();
    }

    @Test
    void races_of_cancel_against_grant_leave_no_hold() throws Exception {
        DLock lock = client.lock("race:cancel");
        int granted = 0;
        for (int round = 0; round < RACES; round++) {
            Hold hold = lock.acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("race:cancel", 1);
            CompletableFuture<Boolean> released = hold.releaseAsync();
            spin(round % 40 * 25_000L);
            if (round % 20 == 10) {
                // Some requests are granted, however busy the machine is: this one is canceled after its grant.
                waiting.get(20, TimeUnit.SECONDS);
            }
            if (!waiting.cancel(true)) {
                granted++;
                waiting.join().release();
            }
            released.join();
            soon("nothing is left of round " + round, () -> server.isFree("race:cancel"));
        }
        System.out.println("race:cancel: " + granted + " granted, " + (RACES - granted) + " cancelled");
        assertTrue(granted > 0 && granted < RACES, granted + " granted of " + RACES);
    }

    @FunctionalInterface
    private interface ThrowingRunnable {
        void run() throws Exception;
    }
}
