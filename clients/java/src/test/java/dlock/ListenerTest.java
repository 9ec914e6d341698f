package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Listeners of a client are told about each request and each hold. */
final class ListenerTest {
    private static TestServer server;

    private final Told told = new Told();
    private DLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @BeforeEach
    void connect() {
        client = TestServer.patient().url(server.url()).listener(told).connect();
    }

    /** At the end of the client, each request has its answer, and each hold its end. */
    @AfterEach
    void everything_that_begins_ends() {
        client.close();
        soon("all ends are told: " + told.events, () -> told.count("requested") == told.count("answered")
                && told.count("held") == told.count("released") + told.count("lost"));
    }

    /** Notes the events as words. */
    private static final class Told implements LockListener {
        final Queue<String> events = new ConcurrentLinkedQueue<>();
        final Queue<Duration> times = new ConcurrentLinkedQueue<>();

        long count(String word) {
            return events.stream().filter(event -> event.startsWith(word)).count();
        }

        private void is(String... expected) {
            soon(List.of(expected) + ", not " + events, () -> List.copyOf(events).equals(List.of(expected)));
        }

        @Override
        public void requested(List<String> names) {
            events.add("requested " + names);
        }

        @Override
        public void answered(List<String> names, Outcome outcome, Duration waited) {
            events.add("answered " + outcome);
            times.add(waited);
        }

        @Override
        public void held(List<String> names) {
            events.add("held " + names);
        }

        @Override
        public void released(List<String> names, Duration held) {
            events.add("released " + names);
            times.add(held);
        }

        @Override
        public void lost(List<String> names, Duration held) {
            events.add("lost " + names);
            times.add(held);
        }
    }

    @Test
    void a_lock_is_requested_held_and_released_once() throws Exception {
        DLock lock = client.lock("once");
        lock.lock();
        lock.lock();
        Thread.sleep(50);
        lock.unlock();
        lock.unlock();
        told.is("requested [once]", "answered GRANTED", "held [once]", "released [once]");
        assertTrue(Collections.max(told.times).toMillis() >= 50, told.times::toString);
        DSemaphore pool = client.semaphore("pool", 2);
        pool.acquire();
        pool.release();
        assertEquals(1, told.count("released [pool]"));
        client.lock("a", "b").acquire().release();
        assertEquals(1, told.count("held [a, b]"));
        assertTrue(client.lock("period").once(Duration.ofHours(1), hold -> {}));
        soon("the run is over", () -> told.count("released [period]") == 1);
    }

    @Test
    void each_outcome_has_its_word() throws Exception {
        server.run("DLOCK.ACQUIRE", "taken", "other");
        assertTrue(client.lock("taken").tryAcquire(Duration.ofSeconds(2)).isEmpty());
        assertTrue(told.times.element().toMillis() >= 1000, told.times::toString);
        told.is("requested [taken]", "answered REFUSED");
        CompletableFuture<Hold> waiting = client.lock("taken").acquireAsync();
        server.untilWaiting("taken", 1);
        waiting.cancel(true);
        told.is("requested [taken]", "answered REFUSED", "requested [taken]", "answered CANCELED");
        server.run("SET", "text", "a");
        assertThrows(ServerException.class, client.lock("text")::lock);
        assertEquals(1, told.count("answered FAILED"));
        Thread thread = new Thread(() -> assertThrows(InterruptedException.class, client.lock("taken")::acquire));
        thread.start();
        server.untilWaiting("taken", 1);
        thread.interrupt();
        thread.join(20_000);
        assertEquals(2, told.count("answered CANCELED"));
        client.lock("taken").acquireAsync();
        server.untilWaiting("taken", 1);
        client.close();
        assertEquals(3, told.count("answered CANCELED"));
    }

    @Test
    void a_loss_is_told_once_wherever_it_is_noticed() throws Exception {
        Hold deleted = client.lock("deleted").acquire();
        server.run("DEL", "deleted");
        assertThrows(LockLostException.class, deleted::release);
        assertEquals(1, told.count("lost [deleted]"));
        Hold lapsed = client.lock("lapsed").withLease(Lease.fixed(Duration.ofMillis(300))).acquire();
        soon("it is lost", () -> told.count("lost [lapsed]") == 1);
        assertThrows(LockLostException.class, lapsed::release);
        Hold checked = client.lock("checked").acquire();
        server.run("DEL", "checked");
        assertThrows(LockLostException.class, () -> checked.extend(Duration.ofMinutes(1)));
        checked.close();
        assertEquals(1, told.count("lost [checked]"));
        DLock unrenewed = client.lock("asked").withLease(Lease.fixed(Duration.ofMinutes(1)));
        Hold asked = unrenewed.acquire();
        server.run("DEL", "asked");
        assertFalse(asked.check());
        assertFalse(asked.isHeld());
        DSemaphore permits = client.semaphore("parts", 3).withLease(Lease.fixed(Duration.ofMinutes(1)));
        permits.acquire(3);
        server.run("DEL", "parts");
        assertThrows(LockLostException.class, permits::release);
        assertEquals(1, told.count("lost [parts]"));
        assertThrows(LockLostException.class, () -> permits.release(2));
        unrenewed.lock();
        unrenewed.lock();
        server.run("DEL", "asked");
        assertThrows(LockLostException.class, unrenewed::unlock);
        assertEquals(2, told.count("lost [asked]"));
        assertThrows(LockLostException.class, unrenewed::unlock);
        assertEquals(6, told.count("lost"));
        assertEquals(0, told.count("released"));
    }

    /** A slow listener delays the client's timer, so the hand-over is the first to find that the lease has ended. */
    @Test
    void a_hold_whose_lease_has_ended_is_lost_not_handed_over() throws Exception {
        CompletableFuture<Void> delay = new CompletableFuture<>();
        LockListener late = new LockListener() {
            @Override
            public void lost(List<String> names, Duration held) {
                delay.join();
            }
        };
        try (DLockClient other = TestServer.patient().url(server.url()).listener(told).listener(late).connect()) {
            other.lock("first").withLease(Lease.fixed(Duration.ofMillis(300))).acquire();
            soon("the timer is late", () -> told.count("lost [first]") == 1);
            Hold second = other.lock("second").withLease(Lease.fixed(Duration.ofMillis(300))).acquire();
            soon("its lease is over", () -> !second.isHeld());
            CompletableFuture<Void> handed = CompletableFuture.runAsync(
                    () -> assertThrows(LockLostException.class, second::handOver));
            soon("it is told lost", () -> told.count("lost [second]") == 1);
            delay.complete(null);
            handed.get(20, TimeUnit.SECONDS);
            assertEquals(0, told.count("released"));
        } finally {
            delay.complete(null);
        }
    }

    @Test
    void a_hold_that_is_handed_over_is_held_where_it_goes() throws Exception {
        Hold here = client.lock("over").acquire();
        here.handOver();
        Hold there = client.lock("over").resume(here.owner(), here.fencingToken());
        there.release();
        told.is("requested [over]", "answered GRANTED", "held [over]", "released [over]", "held [over]",
                "released [over]");
    }

    @Test
    void a_listener_that_fails_changes_nothing() throws Exception {
        LockListener fails = new LockListener() {
            @Override
            public void requested(List<String> names) {
                throw new IllegalStateException("of the listener");
            }

            @Override
            public void held(List<String> names) {
                throw new AssertionError("of the listener");
            }
        };
        Queue<String> uncaught = new ConcurrentLinkedQueue<>();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> uncaught.add("" + thrown.getMessage()));
        try (DLockClient other = TestServer.patient().url(server.url()).listener(fails).listener(told).connect()) {
            DLock lock = other.lock("fails");
            assertTrue(elsewhere(() -> {
                boolean granted = lock.tryLock();
                lock.unlock();
                return granted;
            }));
            lock.acquireAsync().get(20, TimeUnit.SECONDS).release();
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertTrue(uncaught.contains("of the listener"), uncaught::toString);
        assertEquals(2, told.count("released [fails]"));
        assertTrue(server.isFree("fails"));
    }

    /** Kotlin throws what the interface does not name, and a handler of exceptions may throw as well. */
    @Test
    void whatever_a_listener_throws_holds_are_renewed_and_losses_told() throws Exception {
        LockListener fails = new LockListener() {
            @Override
            public void held(List<String> names) {
                ListenerTest.<RuntimeException>fail();
            }

            @Override
            public void lost(List<String> names, Duration held) {
                ListenerTest.<RuntimeException>fail();
            }
        };
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> {
            throw new IllegalStateException("of the handler");
        });
        try (DLockClient other = TestServer.patient().url(server.url()).listener(fails).listener(told).connect()) {
            Hold kept = other.lock("kept").withLease(Lease.renewed(Duration.ofSeconds(3))).acquire();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            other.lock("brief").withLease(Lease.fixed(Duration.ofMillis(300))).acquire().onLost(lost::complete);
            lost.get(20, TimeUnit.SECONDS);
            soon("a part of the lease is over", () -> (long) server.run("PTTL", "kept") < 2500);
            soon("it is renewed", () -> (long) server.run("PTTL", "kept") > 2500);
            kept.release();
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertEquals(1, told.count("lost [brief]"));
        assertEquals(1, told.count("released [kept]"));
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void fail() throws T {
        throw (T) new java.io.IOException("of the listener");
    }
}
