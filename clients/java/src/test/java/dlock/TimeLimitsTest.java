package dlock;

import static dlock.TestServer.refused;
import static dlock.TestServer.sleep;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Waits end at their limits, whatever the server does. The clients have the default settings unless stated. */
final class TimeLimitsTest {
    private static final Lease SESSION = Lease.session(Duration.ofSeconds(30));

    private TestServer server;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start("--appendonly", "yes");
        client = DLockClient.connect(server.url());
        // Opens the first connection before a test stops the server.
        client.lock("warm").lock();
        client.lock("warm").unlock();
    }

    @AfterEach
    void stop() {
        // A frozen server would not answer to the client's end.
        server.thaw();
        client.close();
        server.close();
    }

    @Test
    void without_a_server_a_try_ends_in_a_second_and_a_wait_at_its_limit() throws Exception {
        server.kill();
        tries_and_waits_end();
    }

    @Test
    void at_a_server_that_hangs_a_try_ends_in_a_second_and_a_wait_at_its_limit() throws Exception {
        server.freeze();
        tries_and_waits_end();
    }

    private void tries_and_waits_end() throws Exception {
        DLock lock = client.lock("limits");
        for (DLock each : List.of(lock, lock.withLease(SESSION), client.lock("limits:a", "limits:b"),
                lock.withReplicas(1, Duration.ofSeconds(10)), client.readWriteLock("limits").readLock())) {
            unavailable(1000, 0, each::tryLock);
            unavailable(100, 100, () -> each.tryLock(100, TimeUnit.MILLISECONDS));
        }
        unavailable(1000, 0, () -> lock.tryLock(0, TimeUnit.SECONDS));
        unavailable(700, 700, () -> lock.tryAcquire(Duration.ofMillis(700)));
        DSemaphore semaphore = client.semaphore("limits:permits", 3);
        unavailable(1000, 0, semaphore::tryAcquire);
        unavailable(300, 300, () -> semaphore.tryAcquire(2, 300, TimeUnit.MILLISECONDS));
        Stopwatch took = new Stopwatch();
        CompletableFuture<Optional<Hold>> waiting = lock.tryAcquireAsync(Duration.ofMillis(300));
        ExecutionException failure = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof UnavailableException, String.valueOf(failure));
        took.at(300);
    }

    /** Asserts that an acquisition fails without an answer, after {@code least} to {@code most} ms. */
    private static void unavailable(long most, long least, Callable<?> acquisition) {
        Stopwatch took = new Stopwatch();
        assertThrows(UnavailableException.class, acquisition::call);
        if (least > 0) {
            took.at(least);
        }
        took.within(most);
    }

    @Test
    void a_server_that_comes_back_after_the_limit_grants_nothing() throws Exception {
        DLock lock = client.lock("late");
        server.kill();
        CompletableFuture<Void> back = CompletableFuture.runAsync(() -> {
            sleep(2000);
            server.launch();
        });
        unavailable(1000, 1000, () -> lock.tryLock(1, TimeUnit.SECONDS));
        back.join();
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    /** The timer of a limit may be late: the caller has the lock by then. */
    @Test
    void a_limit_that_passes_after_the_grant_takes_nothing_back() throws Exception {
        Limits limit = Limits.of(Duration.ofSeconds(1), 1000, Limits.TRY_MILLIS, System.nanoTime());
        Granting granting = client.lock("granted").freshGranting(limit);
        Hold hold = granting.start().get(20, TimeUnit.SECONDS);
        soon("the limit has passed", () -> limit.giveUp().hasPassed());
        granting.checkLimit();
        assertTrue(hold.isHeld());
        assertTrue(hold.check());
        hold.release();
    }

    @Test
    void a_wait_with_a_limit_longer_than_the_patience_looks_for_a_server_until_that_limit() throws Exception {
        try (DLockClient impatient = DLockClient.builder().url(server.url())
                .patience(Duration.ofMillis(1000)).connect()) {
            server.kill();
            unavailable(2500, 2500, () -> impatient.lock("looks").tryLock(2500, TimeUnit.MILLISECONDS));
            CompletableFuture<Void> back = CompletableFuture.runAsync(() -> {
                sleep(2000);
                server.launch();
            });
            assertTrue(impatient.lock("looks").tryLock(20, TimeUnit.SECONDS));
            back.join();
            impatient.lock("looks").unlock();
        }
    }

    @Test
    void a_wait_in_the_queue_of_a_server_that_hangs_ends_as_refused() throws Exception {
        server.run("DLOCK.ACQUIRE", "queue", "other");
        for (DLock lock : List.of(client.lock("queue"), client.lock("queue").withLease(SESSION))) {
            Stopwatch took = new Stopwatch();
            CompletableFuture<Optional<Hold>> waiting = lock.tryAcquireAsync(Duration.ofSeconds(4));
            server.untilWaiting("queue", 1);
            server.freeze();
            // Refused, because the server had said that the lock is held before it hung.
            assertEquals(Optional.empty(), waiting.get(20, TimeUnit.SECONDS));
            took.at(4000);
            server.thaw();
            server.untilWaiting("queue", 0);
        }
        // A request keeps its place through a short stall, and is refused at its limit.
        refused(() -> {
            Stopwatch took = new Stopwatch();
            CompletableFuture<Optional<Hold>> waiting = client.lock("queue").tryAcquireAsync(Duration.ofSeconds(3));
            server.untilWaiting("queue", 1);
            Object before = server.each("queue", "queue", "client").get(0);
            server.freeze();
            sleep(500);
            server.thaw();
            assertEquals(before, server.each("queue", "queue", "client").get(0));
            Optional<Hold> hold = TestServer.joined(waiting);
            took.at(3000);
            return hold;
        });
    }

    @Test
    void the_patience_of_a_wait_without_a_limit_counts_from_the_last_answer() throws Exception {
        try (DLockClient impatient = DLockClient.builder().url(server.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofSeconds(4)).connect()) {
            server.run("DLOCK.ACQUIRE", "patience", "other");
            CompletableFuture<Hold> waiting = impatient.lock("patience").acquireAsync();
            server.untilWaiting("patience", 1);
            sleep(4500);
            assertFalse(waiting.isDone());
            Stopwatch took = new Stopwatch();
            server.freeze();
            ExecutionException failure =
                    assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            took.within(4000);
            assertTrue(failure.getCause() instanceof UnavailableException, String.valueOf(failure));
            server.thaw();
            server.untilWaiting("patience", 0);
            // Without any answer, the patience counts from the start of the request.
            server.kill();
            unavailable(4000, 4000, () -> {
                impatient.lock("patience").lock();
                return null;
            });
        }
    }

    @Test
    void a_thread_that_enters_again_keeps_the_limit_too() throws Exception {
        DLock timed = client.lock("again:timed");
        DLock tried = client.lock("again:tried");
        DLock forever = client.lock("again:forever");
        for (DLock lock : List.of(timed, tried, forever)) {
            lock.lock();
        }
        server.freeze();
        unavailable(100, 100, () -> timed.tryLock(100, TimeUnit.MILLISECONDS));
        unavailable(1000, 0, tried::tryLock);
        CompletableFuture<Stopwatch> interrupted = new CompletableFuture<>();
        Thread thread = Thread.currentThread();
        CompletableFuture.runAsync(() -> {
            sleep(300);
            interrupted.complete(new Stopwatch());
            thread.interrupt();
        });
        assertThrows(InterruptedException.class, forever::lockInterruptibly);
        interrupted.join().within(100);
        server.thaw();
        for (DLock lock : List.of(timed, tried, forever)) {
            assertEquals(1, lock.getHoldCount());
            lock.unlock();
            soon("all entries are released", () -> server.isFree(lock.names().get(0)));
        }
    }

    /** Interrupts requests in the queue and before it, while the server answers, hangs or is away. */
    @Test
    void an_interrupt_takes_effect_at_once() throws Exception {
        server.run("DLOCK.ACQUIRE", "interrupt", "other");
        for (DLock lock : List.of(client.lock("interrupt"), client.lock("interrupt").withLease(SESSION))) {
            interrupted(lock, 1, () -> {});
            interrupted(lock, 1, server::freeze);
            server.thaw();
            server.untilWaiting("interrupt", 0);
            server.freeze();
            interrupted(lock, 0, () -> {});
            server.thaw();
            server.untilWaiting("interrupt", 0);
        }
        server.run("DLOCK.RELEASE", "interrupt", "other");
        soon("nothing is left", () -> server.isFree("interrupt"));
        server.kill();
        interrupted(client.lock("interrupt"), 0, () -> {});
    }

    /** Interrupts a request that waits in the queue, or has been sent 300 ms ago if {@code waiters} is 0. */
    private void interrupted(DLock lock, int waiters, Runnable before) throws Exception {
        CompletableFuture<Throwable> outcome = new CompletableFuture<>();
        Thread thread = new Thread(() -> outcome.complete(assertThrows(Throwable.class, lock::lockInterruptibly)));
        thread.start();
        if (waiters > 0) {
            server.untilWaiting("interrupt", waiters);
        } else {
            sleep(300);
        }
        before.run();
        Stopwatch took = new Stopwatch();
        thread.interrupt();
        assertTrue(outcome.get(20, TimeUnit.SECONDS) instanceof InterruptedException, String.valueOf(outcome));
        took.within(100);
    }

    @Test
    void a_cancelled_request_leaves_the_queue_of_a_server_that_hung() throws Exception {
        Hold other = client.lock("cancelled").acquire();
        CompletableFuture<Hold> waiting = client.lock("cancelled").acquireAsync();
        server.untilWaiting("cancelled", 1);
        server.freeze();
        Stopwatch took = new Stopwatch();
        assertTrue(waiting.cancel(true));
        took.within(100);
        server.thaw();
        server.untilWaiting("cancelled", 0);
        other.release();
        soon("the lock is free", () -> server.isFree("cancelled"));
    }

    // close()

    @Test
    void closing_the_client_releases_what_it_holds() throws Exception {
        DLockClient own = DLockClient.connect(server.url());
        own.lock("close:thread").lock();
        own.lock("close:fixed").withLease(Lease.fixed(Duration.ofMinutes(10))).acquire();
        own.lock("close:session").withLease(SESSION).acquire();
        own.lock("close:a", "close:b").acquire();
        own.readWriteLock("close:read").readLock().lock();
        own.semaphore("close:permits", 5).acquire(3);
        server.run("DLOCK.ACQUIRE", "close:other", "other");
        CompletableFuture<Hold> waiting = own.lock("close:other").acquireAsync();
        server.untilWaiting("close:other", 1);
        Stopwatch took = new Stopwatch();
        own.close();
        took.within(1000);
        for (String name : List.of("thread", "fixed", "session", "a", "b", "read", "permits")) {
            assertTrue(server.isFree("close:" + name), name);
        }
        assertEquals(0, server.waiters("close:other"));
        ExecutionException failure = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof UnavailableException, String.valueOf(failure));
        assertThrows(IllegalStateException.class, own.lock("close:after")::lock);
    }

    @Test
    void closing_the_client_waits_for_its_cleanups_in_the_background() {
        DLockClient own = DLockClient.connect(server.url());
        server.freeze();
        unavailable(100, 100, () -> own.lock("close:behind").tryLock(100, TimeUnit.MILLISECONDS));
        CompletableFuture<Void> back = CompletableFuture.runAsync(() -> {
            sleep(500);
            server.thaw();
        });
        own.close();
        back.join();
        // The server executed the request after the thaw. Its first grant was that of the lock "warm".
        soon("the request was granted", () -> server.figure("dlock", "dlock_grants") > 1);
        assertTrue(server.isFree("close:behind"));
    }

    @Test
    void closing_the_client_ends_a_term_before_its_lock_is_released() {
        CompletableFuture<Boolean> stoppedFirst = new CompletableFuture<>();
        DLockClient own = DLockClient.connect(server.url());
        CompletableFuture<Hold> leads = new CompletableFuture<>();
        own.elect("close:leader", leads::complete,
                term -> stoppedFirst.complete(!server.isFree("close:leader")));
        leads.orTimeout(20, TimeUnit.SECONDS).join();
        own.close();
        assertTrue(stoppedFirst.getNow(false));
        assertTrue(server.isFree("close:leader"));
    }

    @Test
    void closing_the_client_of_a_server_that_hangs_takes_two_seconds_at_most() throws Exception {
        DLockClient own = DLockClient.connect(server.url());
        own.lock("close:hangs").acquire();
        server.freeze();
        Stopwatch took = new Stopwatch();
        own.close();
        took.within(2000);
    }

    /** The executor looks up the names of servers: a slow executor stands for a slow look-up. */
    @Test
    void a_name_that_takes_long_to_look_up_does_not_outlast_the_timeout() {
        java.util.concurrent.Executor slow = task -> {
            Thread thread = new Thread(() -> {
                sleep(3000);
                task.run();
            });
            thread.setDaemon(true);
            thread.start();
        };
        unavailable(600, 600, () -> DLockClient.builder().url(server.url())
                .executor(slow).timeout(Duration.ofMillis(600)).connect());
    }
}
