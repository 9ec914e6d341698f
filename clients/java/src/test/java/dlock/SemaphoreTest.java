package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The permits of a semaphore. */
final class SemaphoreTest {
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
    void a_permit_has_the_lowest_number_that_is_free() throws Exception {
        DSemaphore pool = client.semaphore("devices", 3).withSlots();
        List<Hold> holds = List.of(
                pool.acquireAsync(1).get(), pool.acquireAsync(1).get(), pool.acquireAsync(1).get());
        for (int i = 0; i < 3; i++) {
            assertEquals(i, holds.get(i).slot());
        }
        CompletableFuture<Hold> waiting = pool.acquireAsync(1);
        server.untilWaiting("devices", 1);
        holds.get(1).release();
        Hold next = waiting.get(60, TimeUnit.SECONDS);
        assertEquals(1, next.slot());
        next.extend(Duration.ofMinutes(1));
        assertEquals(List.of(0L, 1L, 2L), server.each("devices", "holds", "slot").stream().sorted()
                .collect(java.util.stream.Collectors.toList()));
        next.release();
        pool.acquire();
        assertEquals(1, pool.slot());
        pool.release();
        assertEquals(1, pool.tryAcquireHold(1, Duration.ZERO).orElseThrow().slot());
        assertThrows(IllegalArgumentException.class, () -> pool.acquire(2));
        assertThrows(IllegalMonitorStateException.class, pool::slot);
        DSemaphore plain = client.semaphore("plain", 2);
        plain.acquire();
        assertThrows(IllegalStateException.class, plain::slot);
        plain.release();
    }

    @Test
    void permits_are_limited() {
        DSemaphore permits = client.semaphore("limited", 3);
        assertTrue(permits.tryAcquire(2));
        assertTrue(permits.tryAcquire());
        assertFalse(permits.tryAcquire());
        assertEquals(0, permits.availablePermits());
        permits.release();
        assertEquals(1, permits.availablePermits());
        permits.release(2);
        assertEquals(3, permits.availablePermits());
        assertTrue(server.isFree("limited"));
        assertTrue(permits.isFair());
    }

    @Test
    void a_large_request_is_given_back_in_parts() {
        DSemaphore permits = client.semaphore("parts", 10);
        assertTrue(permits.tryAcquire(10));
        permits.release(3);
        assertEquals(7, server.count("parts"));
        permits.release(3);
        assertThrows(IllegalStateException.class, () -> permits.release(5));
        assertEquals(4, server.count("parts"));
        permits.release(4);
        assertTrue(server.isFree("parts"));
        assertThrows(IllegalStateException.class, permits::release);
    }

    @Test
    void another_thread_may_release() {
        DSemaphore permits = client.semaphore("threads", 2);
        permits.acquireUninterruptibly();
        long token = permits.fencingToken();
        assertEquals(token, server.info("threads").get("token"));
        elsewhere(() -> {
            permits.release();
            return null;
        });
        assertTrue(server.isFree("threads"));
        assertThrows(IllegalMonitorStateException.class, permits::fencingToken);
    }

    @Test
    void waiters_are_served_in_order() throws Exception {
        DSemaphore permits = client.semaphore("order", 2);
        permits.acquire(2);
        CompletableFuture<Hold> large = permits.acquireAsync(2);
        server.untilWaiting("order", 1);
        CompletableFuture<Hold> small = permits.acquireAsync(1);
        server.untilWaiting("order", 2);
        permits.release();
        assertFalse(small.isDone() || large.isDone());
        permits.release();
        Hold both = large.get(20, TimeUnit.SECONDS);
        assertFalse(small.isDone());
        both.release();
        small.get(20, TimeUnit.SECONDS).release();
        assertTrue(server.isFree("order"));
    }

    @Test
    void a_timed_or_interrupted_wait_leaves_the_queue() throws Exception {
        DSemaphore permits = client.semaphore("leave", 1);
        Hold hold = permits.tryAcquireHold(1, Duration.ZERO).orElseThrow();
        refused(() -> permits.tryAcquire(50, TimeUnit.MILLISECONDS));
        refused(() -> permits.tryAcquireHold(1, Duration.ofMillis(20)));
        CompletableFuture<Boolean> left = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                permits.acquire();
            } catch (InterruptedException e) {
                left.complete(true);
            }
        });
        thread.start();
        server.untilWaiting("leave", 1);
        assertTrue(permits.hasQueuedThreads());
        thread.interrupt();
        assertTrue(left.get(20, TimeUnit.SECONDS));
        server.untilWaiting("leave", 0);
        hold.release();
        assertTrue(server.isFree("leave"));
    }

    @Test
    void two_hundred_races_of_a_cancellation_against_a_grant_leave_no_permit_taken() throws Exception {
        DSemaphore permits = client.semaphore("race", 3);
        for (int round = 0; round < 200; round++) {
            permits.acquire(3);
            CompletableFuture<Hold> waiting = permits.acquireAsync(2);
            server.untilWaiting("race", 1);
            permits.release(3);
            if (!waiting.cancel(true)) {
                waiting.join().release();
            }
            soon("nothing is left of round " + round, () -> server.isFree("race"));
        }
    }

    @Test
    void all_that_is_left_can_be_drained() {
        DSemaphore permits = client.semaphore("drain", 5);
        assertTrue(permits.tryAcquire(2));
        assertEquals(3, permits.drainPermits());
        assertEquals(0, permits.drainPermits());
        permits.release(5);
        assertTrue(server.isFree("drain"));
    }

    @Test
    void permits_of_a_session_end_with_its_connection() throws Exception {
        DSemaphore permits = client.semaphore("session", 2).withLease(Lease.session(Duration.ofSeconds(5)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        permits.onLost(lost::complete);
        permits.acquire();
        List<Object> session = server.each("session", "holds", "session");
        server.run("CLIENT", "KILL", "ID", session.get(0));
        lost.get(20, TimeUnit.SECONDS);
        soon("the permits are free", () -> server.isFree("session"));
        assertThrows(LockLostException.class, permits::release);
    }

    @Test
    void more_than_there_are_is_refused() {
        DSemaphore permits = client.semaphore("refused", 2);
        assertThrows(IllegalArgumentException.class, () -> permits.acquire(3));
        assertThrows(IllegalArgumentException.class, () -> permits.acquireAsync(3));
        assertThrows(IllegalArgumentException.class, () -> permits.acquireAsync(0));
        assertTrue(server.isFree("refused"));
    }

    /** Behaves as {@link java.util.concurrent.Semaphore} does, except where that would wait forever. */
    @Test
    void zero_permits_are_always_granted_and_too_many_never() throws Exception {
        DSemaphore permits = client.semaphore("numbers", 2);
        permits.acquire(2);
        permits.acquire(0);
        permits.acquireUninterruptibly(0);
        assertTrue(permits.tryAcquire(0) && permits.tryAcquire(0, 1, TimeUnit.HOURS));
        permits.release(0);
        assertEquals(2, server.count("numbers"));
        permits.release(2);
        assertFalse(permits.tryAcquire(3));
        assertFalse(permits.tryAcquire(3, 1, TimeUnit.MILLISECONDS));
        assertTrue(permits.tryAcquireHold(3, Duration.ZERO).isEmpty());
        assertTrue(server.isFree("numbers"));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> permits.acquire(0));
        for (int wrong : new int[] {-1, Integer.MIN_VALUE}) {
            assertThrows(IllegalArgumentException.class, () -> permits.acquire(wrong));
            assertThrows(IllegalArgumentException.class, () -> permits.tryAcquire(wrong));
            assertThrows(IllegalArgumentException.class, () -> permits.release(wrong));
        }
        // In Java's semaphore, this request would wait forever.
        assertThrows(IllegalArgumentException.class, () -> permits.acquire(3));
    }
}
