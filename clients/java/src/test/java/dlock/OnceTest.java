package dlock;

import static dlock.TestServer.sleep;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** At most one run in each period, on all machines together. */
final class OnceTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private TestServer server;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start();
        client = TestServer.patient().url(server.url()).lease(Lease.renewed(Duration.ofSeconds(2))).connect();
    }

    @AfterEach
    void stop() {
        client.close();
        server.close();
    }

    private long left(String name) {
        return (long) server.run("PTTL", name);
    }

    @Test
    void of_programs_that_start_at_about_the_same_time_one_runs_in_each_period() throws Exception {
        List<DLockClient> machines = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            machines.add(server.client());
        }
        AtomicInteger runs = new AtomicInteger();
        Duration length = Duration.ofSeconds(8);
        for (int period = 0; period < 3; period++) {
            long end = System.nanoTime() + length.toNanos();
            List<CompletableFuture<Boolean>> all = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                // The clocks of machines differ, and another machine is first each time.
                long pause = (i * 7 + period * 3) % 5 * 150;
                DLock lock = machines.get(i).lock("report");
                all.add(CompletableFuture.supplyAsync(() -> {
                    try {
                        Thread.sleep(pause);
                        return lock.once(length, hold -> runs.incrementAndGet());
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                }, run -> new Thread(run).start()));
            }
            assertEquals(1, all.stream().filter(CompletableFuture::join).count());
            assertEquals(period + 1, runs.get());
            Thread.sleep(Math.max(0, (end - System.nanoTime()) / 1_000_000));
            // On a busy machine the run may have begun late.
            TestServer.soon("the next period can begin", () -> server.isFree("report"));
        }
        machines.forEach(DLockClient::close);
    }

    @Test
    void the_lock_stays_for_nine_tenths_of_the_period_counted_from_the_start() throws Exception {
        DLock lock = client.lock("stays");
        assertTrue(lock.once(MINUTE, hold -> {
            sleep(3000);
            assertTrue(hold.isHeld(), "it is renewed");
        }));
        assertTrue(left("stays") > 49_000 && left("stays") <= 51_000, left("stays") + " ms");
        assertFalse(lock.once(MINUTE, hold -> fail("it has run")));
    }

    @Test
    void a_run_that_fails_has_run_unless_success_is_needed() throws Exception {
        DLock lock = client.lock("fails");
        assertThrows(IllegalStateException.class, () -> lock.once(MINUTE, hold -> {
            throw new IllegalStateException("of the job");
        }));
        assertTrue(left("fails") > 50_000);
        assertFalse(lock.once(MINUTE, hold -> fail("it has run")));

        DLock retried = client.lock("retried");
        assertThrows(IllegalStateException.class, () -> retried.onceUntilSuccess(MINUTE, hold -> {
            throw new IllegalStateException("of the job");
        }));
        assertTrue(server.isFree("retried"));
        assertTrue(retried.onceUntilSuccess(MINUTE, hold -> assertTrue(left("retried") <= 2000, "a crash ends it soon")));
        assertTrue(left("retried") > 52_000 && left("retried") <= 54_050, left("retried") + " ms");
        assertFalse(retried.onceUntilSuccess(MINUTE, hold -> fail("it has run")));
    }

    @Test
    void a_success_that_no_server_hears_of_at_first_is_not_forgotten() throws Exception {
        try (Proxy proxy = new Proxy(server);
                DLockClient its = TestServer.patient().url(proxy.url()).timeout(Duration.ofMillis(500))
                        .patience(Duration.ofMillis(2000)).lease(Lease.renewed(Duration.ofSeconds(20))).connect()) {
            assertTrue(its.lock("unheard").onceUntilSuccess(MINUTE, hold -> {
                proxy.silence();
                CompletableFuture.runAsync(() -> {
                    sleep(4000);
                    proxy.speak();
                    proxy.cut();
                });
            }));
            assertTrue(left("unheard") > 45_000);
        }
    }

    /** A renewal by the short lease gets no answer, and arrives within the second in which late copies are expected. */
    @Test
    void a_late_renewal_does_not_shorten_the_time_that_a_lock_stays() throws Exception {
        for (int i = 0; i < 10; i++) {
            String name = "late:" + i;
            try (Proxy proxy = new Proxy(server);
                    DLockClient its = TestServer.patient().url(proxy.url()).lease(Lease.renewed(Duration.ofSeconds(4)))
                            .connect()) {
                proxy.keepFrom("DLOCK.RENEW");
                long before = server.calls("renew");
                CompletableFuture<Long> arrived = CompletableFuture.supplyAsync(() -> {
                    TestServer.soon("it is kept back", () -> proxy.keeps);
                    long lost = System.nanoTime();
                    proxy.dropKept();
                    TestServer.soon("the lock stays", () -> server.calls("renew") >= before + 2 && left(name) > 45_000);
                    long others = server.calls("renew");
                    proxy.deliver();
                    TestServer.soon("it arrives", () -> server.calls("renew") > others);
                    return System.nanoTime() - lost;
                });
                assertTrue(its.lock(name).onceUntilSuccess(MINUTE, hold -> {}));
                // A late machine may deliver when no client expects it any more.
                if (arrived.get(20, TimeUnit.SECONDS) < TimeUnit.SECONDS.toNanos(1)) {
                    assertTrue(left(name) > 45_000, left(name) + " ms");
                    return;
                }
            }
        }
        Skip.unless(false, "a late renewal of once", "in no run did the machine deliver within a second");
    }

    @Test
    void a_run_whose_lock_is_taken_away_is_told() {
        DLock lock = client.lock("taken");
        assertThrows(LockLostException.class, () -> lock.once(MINUTE, hold -> {
            server.run("DEL", "taken");
            TestServer.soon("it is told", () -> !hold.isHeld());
        }));
        assertThrows(LockLostException.class, () -> lock.onceUntilSuccess(MINUTE, hold -> server.run("DEL", "taken")));
        assertTrue(server.isFree("taken"));
    }

    @Test
    void without_a_server_nothing_runs() {
        try (DLockClient impatient = DLockClient.connect(server.url())) {
            server.freeze();
            Stopwatch took = new Stopwatch();
            assertThrows(
                    UnavailableException.class, () -> impatient.lock("job").once(MINUTE, hold -> fail("it ran")));
            took.within(1250);
            server.thaw();
        }
        server.run("CONFIG", "SET", "dlock.max-lease", 30_000);
        assertThrows(ServerException.class, () -> client.lock("job").once(MINUTE, hold -> fail("it ran")));
        assertThrows(ServerException.class, () -> client.lock("job").onceUntilSuccess(MINUTE, hold -> fail("it ran")));
    }

    @Test
    void invalid_periods_and_leases_of_once_are_refused() {
        DLock lock = client.lock("job");
        assertThrows(IllegalArgumentException.class, () -> lock.once(Duration.ofMillis(999), hold -> {}));
        DLock session = lock.withLease(Lease.session(MINUTE));
        assertThrows(IllegalArgumentException.class, () -> session.once(MINUTE, hold -> {}));
        assertThrows(IllegalArgumentException.class, () -> session.onceUntilSuccess(MINUTE, hold -> {}));
        assertTrue(server.isFree("job"));
    }

    /** Callers from other languages throw what the interface does not name. */
    @SuppressWarnings("unchecked")
    private static <E extends Exception> void sneaky(Exception any) throws E {
        throw (E) any;
    }

    @Test
    void whatever_the_work_throws_ends_the_hold_and_is_thrown() {
        for (Throwable thrown : List.of(new java.io.IOException("checked"), new AssertionError("error"),
                new IllegalStateException("unchecked"))) {
            DLock lock = client.lock("throws");
            Consumer<Hold> work = hold -> {
                if (thrown instanceof Error) {
                    throw (Error) thrown;
                }
                OnceTest.<RuntimeException>sneaky((Exception) thrown);
            };
            assertEquals(thrown, assertThrows(Throwable.class, () -> lock.onceUntilSuccess(MINUTE, work)));
            assertTrue(server.isFree("throws"), thrown.toString());
            assertEquals(thrown, assertThrows(Throwable.class, () -> lock.once(MINUTE, work)));
            assertTrue(left("throws") > 40_000, "it stays, and nobody renews it");
            server.run("DEL", "throws");
        }
    }

    @Test
    void a_release_that_fails_is_attached_to_what_the_work_threw() {
        try (DLockClient hasty = TestServer.patient().url(server.url())
                .timeout(Duration.ofMillis(1000)).patience(Duration.ofMillis(1000)).connect()) {
            IllegalStateException thrown = new IllegalStateException("the body");
            assertEquals(thrown, assertThrows(Throwable.class, () -> hasty.lock("fails").onceUntilSuccess(MINUTE, hold -> {
                server.freeze();
                throw thrown;
            })));
            assertEquals(1, thrown.getSuppressed().length);
            assertTrue(thrown.getSuppressed()[0] instanceof UnavailableException);
            server.thaw();
        }
    }
}
