package dlock;

import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/** Waits that are given up at the moment of the grant. The next request gets the lock. */
final class GivenUpTest {
    /** Longer than the test, so that a hold that is left does not end by itself. */
    private static final Duration LEASE = Duration.ofHours(1);

    private static final String PX = "" + LEASE.toMillis();
    /** How long the next request waits, in ms. A busy machine needs a part of it. A hold that is left lasts longer. */
    private static final long NEXT_MILLIS = 15_000;

    private static Map<String, Function<DLockClient, CompletableFuture<Hold>>> ways() {
        Map<String, Function<DLockClient, CompletableFuture<Hold>>> ways = new LinkedHashMap<>();
        ways.put("lock", client -> client.lock("job").withLease(Lease.renewed(LEASE)).acquireAsync());
        ways.put("session", client -> client.lock("job").withLease(Lease.session(LEASE)).acquireAsync());
        ways.put("reader", client ->
                client.readWriteLock("job").readLock().withLease(Lease.renewed(LEASE)).acquireAsync());
        ways.put("permits", client -> client.semaphore("job", 2).withLease(Lease.renewed(LEASE)).acquireAsync(2));
        return ways;
    }

    private static void held(TestServer server, String way) {
        if (way.equals("permits")) {
            server.run("DLOCK.SACQUIRE", "job", "other", "2", "PX", PX);
        } else {
            server.run("DLOCK.ACQUIRE", "job", "other", "PX", PX);
        }
    }

    private static void nextGetsIt(TestServer server, String what) {
        Object token = server.run("DLOCK.ACQUIRE", "job", "next", "PX", PX, "BLOCK", NEXT_MILLIS);
        assertNotEquals(null, token, what + ": the lock is still held");
        server.run("DLOCK.RELEASE", "job", "next");
    }

    /** Calls {@code each} with offsets from a moment, in ns. Offsets near zero are denser. */
    private static void around(LongConsumer each) {
        for (long us = -1000; us < 2000; us += us > -300 && us < 1000 ? 50 : 250) {
            each.accept(us * 1000);
        }
        for (long ms = 2; ms < 8; ms++) {
            each.accept(ms * 1_000_000);
        }
    }

    private static void spin(long nanos) {
        for (long end = System.nanoTime() + nanos; System.nanoTime() < end; ) {
            Thread.onSpinWait();
        }
    }

    /** {@code giveUp} ends the future, and returns false if the future has ended by itself. */
    private static void givesUpAroundTheGrant(
            TestServer server, DLockClient client, Predicate<CompletableFuture<Hold>> giveUp) {
        around(offset -> ways().forEach((way, acquire) -> {
            held(server, way);
            CompletableFuture<Hold> waiting = acquire.apply(client);
            server.untilWaiting("job", 1);
            CompletableFuture<Void> releasing = CompletableFuture.runAsync(() -> {
                spin(Math.max(0, -offset));
                server.run("DLOCK.RELEASE", "job", "other");
            });
            spin(Math.max(0, offset));
            if (!giveUp.test(waiting)) {
                waiting.join().release();
            }
            releasing.join();
            nextGetsIt(server, way + ", " + offset + " ns");
        }));
    }

    @Test
    void a_future_that_is_cancelled_as_the_grant_comes() {
        try (TestServer server = TestServer.start(); DLockClient client = server.client()) {
            givesUpAroundTheGrant(server, client, waiting -> waiting.cancel(true));
        }
    }

    @Test
    void a_future_that_is_completed_as_the_grant_comes() {
        try (TestServer server = TestServer.start(); DLockClient client = server.client()) {
            givesUpAroundTheGrant(server, client, waiting -> waiting.complete(null));
        }
    }

    @Test
    void a_future_that_is_cancelled_before_a_late_grant_is_heard() {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = DLockClient.connect(proxy.url())) {
            proxy.repliesTake = 3; // ms
            givesUpAroundTheGrant(server, client, waiting -> waiting.cancel(true));
        }
    }

    @Test
    void a_thread_that_is_interrupted_before_a_late_grant_is_heard() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = DLockClient.connect(proxy.url())) {
            proxy.repliesTake = 3; // ms
            DLock lock = client.lock("job").withLease(Lease.renewed(LEASE));
            for (long ms = 0; ms < 12; ms++) {
                held(server, "lock");
                FutureTask<Void> locking = new FutureTask<>(() -> {
                    try {
                        lock.lockInterruptibly();
                        lock.unlock();
                    } catch (InterruptedException e) {
                        // The lock was not granted, or is released.
                    }
                    return null;
                });
                Thread thread = new Thread(locking);
                thread.start();
                server.untilWaiting("job", 1);
                server.run("DLOCK.RELEASE", "job", "other");
                spin(ms * 1_000_000);
                thread.interrupt();
                locking.get(20, TimeUnit.SECONDS);
                nextGetsIt(server, ms + " ms");
            }
        }
    }

    @Test
    void a_grant_to_a_connection_whose_end_comes_late_is_released() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = DLockClient.connect(proxy.url())) {
            proxy.endsTake = 6000; // ms
            for (Map.Entry<String, Function<DLockClient, CompletableFuture<Hold>>> way : ways().entrySet()) {
                held(server, way.getKey());
                CompletableFuture<Hold> waiting = way.getValue().apply(client);
                server.untilWaiting("job", 1);
                assertTrue(waiting.cancel(true));
                // The client has stopped cleaning up. Only the release is left that it sent behind the request.
                Thread.sleep(3000);
                server.run("DLOCK.RELEASE", "job", "other");
                nextGetsIt(server, way.getKey());
            }
        }
    }

    @Test
    void a_wait_whose_time_is_over_as_the_grant_comes() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient near = server.client();
                DLockClient far = DLockClient.connect(proxy.url())) {
            proxy.repliesTake = 180; // ms, longer than the client waits for the last answer
            for (DLockClient client : new DLockClient[] {near, far}) {
                long wait = client == near ? 60 : 600;
                for (long early = 0; early < 4000; early += 250) {
                    held(server, "lock");
                    // The lock is released between 2 ms after and 2 ms before the end of the wait.
                    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(wait + 2) - early * 1000;
                    CompletableFuture<?> waiting = client.lock("job").withLease(Lease.renewed(LEASE))
                            .tryAcquireAsync(Duration.ofMillis(wait))
                            .thenAccept(hold -> hold.ifPresent(Hold::close));
                    spin(end - System.nanoTime());
                    server.run("DLOCK.RELEASE", "job", "other");
                    try {
                        waiting.join();
                    } catch (CompletionException | CancellationException e) {
                        assertTrue(e.getCause() instanceof UnavailableException, e.toString());
                    }
                    nextGetsIt(server, early + " us early");
                }
            }
        }
    }
}
