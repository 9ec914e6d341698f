package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** How long a lock is held at most, and how long it stays at least. */
final class HoldTimeTest {
    private TestServer server;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start();
        client = server.client();
    }

    @AfterEach
    void stop() {
        client.close();
        server.close();
    }

    private static Duration ms(long millis) {
        return Duration.ofMillis(millis);
    }

    private long left(String name) {
        return (long) server.run("PTTL", name);
    }

    private static CompletableFuture<LockLostException> lost(Hold hold) {
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        return lost;
    }

    /** After a failover, the new primary may have no replica yet. */
    @Test
    void a_renewal_that_is_refused_for_now_is_tried_again() throws Exception {
        Hold hold = client.lock("job").withLease(Lease.renewed(ms(6000))).acquire();
        server.run("CONFIG", "SET", "min-replicas-to-write", "1");
        soon("a renewal is refused", () ->
                new String((byte[]) server.run("INFO", "errorstats"), StandardCharsets.UTF_8).contains("NOREPLICAS"));
        server.run("CONFIG", "SET", "min-replicas-to-write", "0");
        soon("the next one succeeds", () -> server.figure("dlock", "dlock_renewals") > 0);
        assertTrue(hold.isHeld());
        hold.release();
    }

    @Test
    void a_lock_is_lost_at_its_cap_however_it_is_kept() throws Exception {
        Session session = client.openSession(ms(3000));
        long began = System.nanoTime();
        Lease renewed = Lease.renewed(ms(3000));
        Map<String, Hold> holds = new LinkedHashMap<>();
        holds.put("renewed", client.lock("renewed").withLease(renewed).withMaxHold(ms(5000)).acquire());
        holds.put("connection",
                client.lock("connection").withLease(Lease.session(ms(3000))).withMaxHold(ms(5000)).acquire());
        holds.put("named", client.lock("named").withLease(Lease.of(session)).withMaxHold(ms(5000)).acquire());
        holds.put("permits", client.semaphore("permits", 2).withLease(renewed).withMaxHold(ms(5000))
                .acquireAsync(1).get());
        holds.put("several", client.lock("a", "b").withLease(renewed).withMaxHold(ms(5000)).acquire());
        holds.put("reader", client.readWriteLock("doc").withLease(renewed).withMaxHold(ms(5000)).readLock().acquire());
        Stopwatch took = new Stopwatch();
        for (Hold hold : holds.values()) {
            lost(hold).get(60, TimeUnit.SECONDS);
        }
        took.within(5100);
        assertTrue(System.nanoTime() - began > TimeUnit.MILLISECONDS.toNanos(4000), "they were renewed");
        holds.forEach((kind, hold) -> {
            assertTrue(hold.remaining().isZero() && !hold.isHeld(), kind);
            assertThrows(LockLostException.class, hold::release, kind);
        });
        assertTrue(session.isOpen());
    }

    @Test
    void a_cap_counts_from_the_grant() throws Exception {
        Session session = client.openSession(ms(3000));
        for (Lease lease : new Lease[] {Lease.renewed(ms(30_000)), Lease.session(ms(30_000)), Lease.of(session)}) {
            Hold first = client.lock("job").acquire();
            CompletableFuture<Hold> waiting =
                    client.lock("job").withLease(lease).withMaxHold(ms(2000)).acquireAsync();
            server.untilWaiting("job", 1);
            Thread.sleep(1500);
            first.release();
            Hold hold = waiting.get(60, TimeUnit.SECONDS);
            assertTrue(hold.remaining().toMillis() > 1000, lease + ": " + hold.remaining());
            long left = left("job");
            assertTrue(hold.remaining().toMillis() <= left + 1, lease + ": " + hold.remaining() + " of " + left);
            Stopwatch took = new Stopwatch();
            lost(hold).get(60, TimeUnit.SECONDS);
            took.within(left);
        }
    }

    @Test
    void a_session_reports_in_time_that_the_cap_of_the_operator_ends_a_lock() throws Exception {
        server.run("CONFIG", "SET", "dlock.max-hold", 16_000);
        Session session = client.openSession(ms(5000));
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        client.lock("short").withLease(Lease.of(session)).acquire().release();
        soon("its end is near", () -> left("job") < 2000);
        assertTrue(hold.isHeld());
        lost(hold).get(60, TimeUnit.SECONDS);
        assertTrue(session.isOpen());
        assertTrue(left("job") < 200, "not too early");
        server.run("CONFIG", "SET", "dlock.max-hold", 0);
        Hold free = client.lock("free").withLease(Lease.of(session)).acquire();
        Thread.sleep(17_000);
        assertTrue(free.isHeld(), "there is no cap");
    }

    @Test
    void nothing_extends_a_lock_beyond_its_cap() throws Exception {
        DLock lock = client.lock("job").withLease(Lease.fixed(ms(30_000))).withMaxHold(ms(40_000));
        lock.lock();
        Thread.sleep(1500);
        lock.lock();
        assertTrue(lock.hold().remaining().toMillis() <= 38_500, "" + lock.hold().remaining());
        lock.hold().extend(ms(60_000));
        long remaining = lock.hold().remaining().toMillis();
        assertTrue(remaining > 1000 && remaining <= 38_500, "" + remaining);
        lock.unlock();
        lock.unlock();
        assertTrue(server.isFree("job"));
    }

    @Test
    void a_lock_stays_for_the_time_of_at_least_after_its_grant() throws Exception {
        DLock lock = client.lock("stays").withLease(Lease.renewed(ms(2000))).withAtLeast(ms(4000));
        long began = System.nanoTime();
        lock.lock();
        long granted = System.nanoTime();
        assertTrue(left("stays") > 2000, "a crash does not shorten it");
        lock.hold().extend(ms(2000));
        assertTrue(left("stays") > 2000, "nor does a renewal");
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread());
        assertFalse(lock.tryLock());
        lock.lock();
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - granted);
        assertTrue(took >= 4000 - TimeUnit.NANOSECONDS.toMillis(granted - began) - 1, took + " ms");
        Thread.sleep(4100);
        lock.unlock();
        assertTrue(server.isFree("stays"), "a release after that time frees it");
        DSemaphore pool = client.semaphore("pool", 1).withAtLeast(ms(60_000));
        pool.acquire();
        pool.release();
        assertEquals(0, pool.availablePermits());
        DLock both = client.lock("a", "b").withAtLeast(ms(60_000));
        both.lock();
        both.unlock();
        assertTrue(left("a") > 50_000 && left("b") > 50_000);
    }

    @Test
    void an_acquisition_that_was_given_up_does_not_stay() throws Exception {
        Hold first = client.lock("job").acquire();
        CompletableFuture<Hold> waiting = client.lock("job").withAtLeast(ms(60_000)).acquireAsync();
        server.untilWaiting("job", 1);
        waiting.cancel(false);
        first.release();
        soon("it is free", () -> server.isFree("job"));
    }

    @Test
    void invalid_limits_of_a_hold_are_refused() {
        DLock lock = client.lock("job");
        Session session = client.openSession(ms(3000));
        assertThrows(IllegalArgumentException.class, () -> lock.withMaxHold(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> lock.withAtLeast(ms(-1)));
        assertThrows(IllegalArgumentException.class, () -> lock.withMaxHold(ms(999)).withAtLeast(ms(1000)));
        assertThrows(IllegalArgumentException.class,
                () -> lock.withLease(Lease.session(ms(3000))).withAtLeast(ms(1000)));
        assertThrows(IllegalArgumentException.class,
                () -> lock.withAtLeast(ms(1000)).withLease(Lease.of(session)));
    }
}
