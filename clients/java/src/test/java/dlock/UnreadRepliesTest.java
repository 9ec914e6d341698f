package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** No reply reaches the wrong request, and no request waits for the reply to another. */
final class UnreadRepliesTest {
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
    void a_connection_with_an_unread_reply_is_closed_and_not_used_again() {
        try (Loop loop = new Loop()) {
            Node node = new Node(loop, new Address("127.0.0.1", server.port), TestServer.login(null, null),
                    5000, Runnable::run);
            Connection idle = TestServer.joined(node.take());
            node.giveBack(idle);
            Connection busy = TestServer.joined(node.take());
            assertSame(idle, busy);
            // No replica exists, so the answer to WAIT comes after 5 s: it is unread when the connection is given back.
            CompletableFuture<Object> unread = busy.send(Words.command("WAIT", 1, 5000));
            node.giveBack(busy);
            Connection next = TestServer.joined(node.take());
            assertNotSame(busy, next);
            assertTrue(busy.ended().isDone());
            assertTrue(unread.isCompletedExceptionally());
            node.close();
        }
    }

    @Test
    void a_refused_request_for_replicas_holds_up_nobody() throws Exception {
        // No replica exists: a request that waits for one takes this long.
        Duration longest = Duration.ofSeconds(20);
        server.run("SET", "unread:string", "value");
        DLock string = client.lock("unread:string").withReplicas(1, longest);
        server.run("DLOCK.ACQUIRE", "unread:held", "other");
        DLock held = client.lock("unread:held").withReplicas(1, longest);
        DLock session = client.lock("unread:next").withLease(Lease.session(Duration.ofSeconds(30)));
        for (int round = 0; round < 5; round++) {
            Stopwatch took = new Stopwatch();
            assertEquals("WRONGTYPE", assertThrows(ServerException.class, string::tryLock).code());
            assertEquals(false, held.tryLock());
            assertTrue(session.tryLock());
            session.unlock();
            took.within(1000);
        }
        // A request that has to wait joins the queue at once: no WAIT for replicas comes before.
        Stopwatch took = new Stopwatch();
        CompletableFuture<Hold> waiting = held.acquireAsync();
        server.untilWaiting("unread:held", 1);
        took.within(500);
        waiting.cancel(true);
    }

    @Test
    void a_lost_lock_with_replicas_is_noticed_before_they_are_waited_for() throws Exception {
        // The replica acknowledges the grant, and leaves before the lease is extended: a wait for it would take 20 s.
        try (TestServer replica = TestServer.start()) {
            replica.run("REPLICAOF", "127.0.0.1", server.port);
            DLock lock = client.lock("unread:lost").withReplicas(1, Duration.ofSeconds(20));
            Hold[] hold = new Hold[1];
            soon("the replica acknowledges a grant", () -> {
                try {
                    hold[0] = lock.tryAcquire(Duration.ofSeconds(1)).orElse(null);
                    return hold[0] != null;
                } catch (DLockException e) {
                    return false;
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            replica.run("REPLICAOF", "NO", "ONE");
            server.run("DEL", "unread:lost");
            Stopwatch took = new Stopwatch();
            assertThrows(LockLostException.class, () -> hold[0].extend(Duration.ofMinutes(1)));
            took.within(1000);
        }
    }

    @Test
    void a_thread_that_is_interrupted_does_not_break_the_connection_of_the_others() throws Exception {
        DLock lock = client.lock("unread:interrupted");
        lock.lock();
        lock.unlock();
        long before = server.figure("stats", "total_connections_received");
        for (int round = 0; round < 20; round++) {
            Thread.currentThread().interrupt();
            lock.lock();
            assertTrue(lock.tryLock());
            lock.unlock();
            lock.unlock();
            assertTrue(Thread.interrupted());
        }
        assertEquals(before, server.figure("stats", "total_connections_received"));
    }

    /** Causes refusals, errors, interrupts and timeouts in the middle of pairs of commands, on shared connections. */
    @Test
    void in_a_storm_of_interrupts_and_errors_each_thread_gets_its_own_answers() throws Exception {
        long seed = ThreadLocalRandom.current().nextLong();
        System.out.println("storm: seed " + seed);
        server.run("SET", "storm:string", "value");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(3);
        AtomicInteger granted = new AtomicInteger();
        AtomicInteger interrupted = new AtomicInteger();
        CompletableFuture<Throwable> wrong = new CompletableFuture<>();
        Thread[] threads = new Thread[6];
        for (int i = 0; i < threads.length; i++) {
            Random random = new Random(seed + i);
            threads[i] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        acquireAtRandom(random, granted);
                    } catch (InterruptedException e) {
                        interrupted.incrementAndGet();
                    } catch (TooFewReplicasException | UnavailableException e) {
                        // Expected: no replica exists, and an answer may take longer than the shortest waits.
                    } catch (Throwable e) {
                        wrong.complete(e);
                    }
                }
            });
            threads[i].start();
        }
        Random random = new Random(seed - 1);
        while (System.nanoTime() < end) {
            Thread.sleep(random.nextInt(5));
            threads[random.nextInt(threads.length)].interrupt();
        }
        for (Thread thread : threads) {
            thread.join(20_000);
            assertFalse(thread.isAlive());
        }
        System.out.println("storm: " + granted + " granted, " + interrupted + " interrupted");
        assertEquals(null, wrong.getNow(null));
        assertTrue(granted.get() > 0 && interrupted.get() > 0);
    }

    private static void acquireAtRandom(Random random, AtomicInteger granted) throws InterruptedException {
        String name = "storm:" + random.nextInt(3);
        DLock lock = client.lock(name);
        Duration wait = Duration.ofMillis(random.nextInt(20));
        switch (random.nextInt(5)) {
            case 0:
                lock = lock.withReplicas(1, Duration.ofMillis(1 + random.nextInt(30)));
                break;
            case 1:
                lock = lock.withLease(Lease.session(Duration.ofSeconds(5)));
                break;
            case 2:
                DLock string = client.lock("storm:string").withReplicas(1, Duration.ofMillis(100));
                try {
                    throw new AssertionError("granted: " + string.tryLock());
                } catch (ServerException e) {
                    assertEquals("WRONGTYPE", e.code());
                }
                return;
            default:
        }
        Hold hold = lock.tryAcquire(wait).orElse(null);
        if (hold != null) {
            granted.incrementAndGet();
            try {
                Holder holder = client.holder(name).orElseThrow();
                assertEquals(hold.owner(), holder.owner());
                assertEquals(hold.fencingToken(), holder.fencingToken());
                assertTrue(hold.check());
            } finally {
                hold.close();
            }
        }
    }
}
