package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Several locks that are acquired at once. */
final class SeveralTest {
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
    void all_of_several_locks_are_taken_or_none() throws Exception {
        DLock lock = client.lock("all:a", "all:b", "all:c");
        Hold other = client.lock("all:b").acquire();
        assertFalse(lock.tryLock());
        assertTrue(server.isFree("all:a"));
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("all:a", 1);
        assertEquals(1, lock.getQueueLength());
        assertFalse(client.lock("all:a").tryLock());
        other.release();
        Hold hold = waiting.get(20, TimeUnit.SECONDS);
        for (String name : lock.names()) {
            assertEquals(hold.fencingToken(), server.info(name).get("token"));
        }
        assertTrue(hold.check());
        hold.release();
        for (String name : lock.names()) {
            assertTrue(server.isFree(name));
        }
    }

    @Test
    void a_thread_enters_again_and_leaves_as_often() {
        DLock lock = client.lock("again:a", "again:b");
        lock.lock();
        lock.lock();
        assertEquals(2, lock.getHoldCount());
        assertFalse(elsewhere(() -> lock.tryLock()));
        lock.unlock();
        assertEquals(1, server.count("again:b"));
        lock.unlock();
        assertTrue(server.isFree("again:a") && server.isFree("again:b"));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void the_loss_of_one_lock_loses_all_of_several() throws Exception {
        // The renewal after 300 ms notices the loss.
        DLock lock = client.lock("lost:a", "lost:b").withLease(Lease.renewed(Duration.ofMillis(900)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        lock.onLost(lost::complete);
        lock.lock();
        server.run("DEL", "lost:a");
        lost.get(20, TimeUnit.SECONDS);
        assertThrows(LockLostException.class, lock::unlock);
        soon("the other lock is released", () -> server.isFree("lost:b"));
    }

    @Test
    void a_session_binds_all_of_several_locks() throws Exception {
        Hold hold = client.lock("session:a", "session:b").withLease(Lease.session(Duration.ofSeconds(5))).acquire();
        List<Object> session = server.each("session:a", "holds", "session");
        assertEquals(session, server.each("session:b", "holds", "session"));
        server.run("CLIENT", "KILL", "ID", session.get(0));
        soon("both locks are free", () -> server.isFree("session:a") && server.isFree("session:b"));
        soon("the client knows of the loss", () -> !hold.isHeld());
    }

    @Test
    void threads_that_name_the_locks_in_different_orders_do_not_block_each_other() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        CompletableFuture<?>[] both = new CompletableFuture<?>[2];
        for (int i = 0; i < 2; i++) {
            DLock lock = i == 0 ? client.lock("order:a", "order:b") : client.lock("order:b", "order:a");
            both[i] = CompletableFuture.runAsync(() -> {
                for (int round = 0; round < 100; round++) {
                    lock.lock();
                    assertEquals(1, inside.incrementAndGet());
                    inside.decrementAndGet();
                    lock.unlock();
                    done.incrementAndGet();
                }
            }, task -> new Thread(task).start());
        }
        CompletableFuture.allOf(both).get(60, TimeUnit.SECONDS);
        assertEquals(200, done.get());
    }

    @Test
    void two_hundred_races_of_cancel_against_grant_leave_nothing() throws Exception {
        DLock lock = client.lock("race:a", "race:b");
        for (int round = 0; round < 200; round++) {
            Hold hold = client.lock("race:b").acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("race:a", 1);
            hold.releaseAsync();
            if (!waiting.cancel(true)) {
                waiting.join().release();
            }
            soon("nothing is left of round " + round, () -> server.isFree("race:a") && server.isFree("race:b"));
        }
    }
}
