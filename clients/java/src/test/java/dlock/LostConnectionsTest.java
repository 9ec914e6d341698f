package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Replies that get lost, and servers that are away. */
final class LostConnectionsTest {
    private TestServer server;
    private Proxy proxy;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start("--appendonly", "yes");
        proxy = new Proxy(server);
        client = TestServer.patient().url(proxy.url())
                .timeout(Duration.ofMillis(1500)).patience(Duration.ofSeconds(20)).connect();
    }

    @AfterEach
    void stop() {
        client.close();
        proxy.close();
        server.close();
    }

    @Test
    void a_grant_whose_reply_was_lost_is_what_the_repeat_gets() {
        DLock lock = client.lock("grant");
        proxy.loseReplyTo("RACQUIRE");
        lock.lock();
        assertEquals(1, proxy.lost.get());
        assertEquals(1, server.count("grant"));
        assertEquals(lock.fencingToken(), server.info("grant").get("token"));
        assertEquals(1, server.figure("dlock", "dlock_grants"));
        lock.unlock();
        assertTrue(server.isFree("grant"));
    }

    @Test
    void a_session_whose_reply_was_lost_is_granted_anew() {
        DLock lock = client.lock("session").withLease(Lease.session(Duration.ofSeconds(5)));
        proxy.loseReplyTo("RACQUIRE");
        lock.lock();
        assertEquals(1, proxy.lost.get());
        assertNotEquals(null, server.each("session", "holds", "session").get(0));
        lock.unlock();
        assertTrue(server.isFree("session"));
    }

    @Test
    void an_entry_is_counted_once_though_it_was_sent_twice() {
        DLock lock = client.lock("entry");
        lock.lock();
        proxy.loseReplyTo("RACQUIRE");
        lock.lock();
        assertEquals(2, server.count("entry"));
        proxy.loseReplyTo("RELEASE");
        lock.unlock();
        assertEquals(1, server.count("entry"));
        proxy.loseReplyTo("RELEASE");
        lock.unlock();
        assertEquals(3, proxy.lost.get());
        assertTrue(server.isFree("entry"));
    }

    @Test
    void a_waiter_whose_connection_breaks_waits_again() throws Exception {
        DLock lock = client.lock("again");
        Hold hold = lock.acquire();
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("again", 1);
        Object before = server.each("again", "queue", "client").get(0);
        server.run("CLIENT", "KILL", "ID", before);
        soon("it is back in the queue", () -> server.waiters("again") == 1
                && !server.each("again", "queue", "client").get(0).equals(before));
        hold.release();
        waiting.get(20, TimeUnit.SECONDS).release();
    }

    @Test
    void a_grant_after_a_wait_whose_reply_was_lost_is_what_the_repeat_gets() throws Exception {
        DLock lock = client.lock("waited");
        server.run("DLOCK.ACQUIRE", "waited", "other");
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("waited", 1);
        proxy.silence();
        server.run("DLOCK.RELEASE", "waited", "other");
        Object token = server.info("waited").get("token");
        proxy.speak();
        proxy.cut();
        Hold hold = waiting.get(20, TimeUnit.SECONDS);
        assertEquals(token, hold.fencingToken());
        hold.release();
    }

    @Test
    void an_unblocked_waiter_asks_again() throws Exception {
        DLock lock = client.lock("unblocked");
        Hold hold = lock.acquire();
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("unblocked", 1);
        server.run("CLIENT", "UNBLOCK", server.each("unblocked", "queue", "client").get(0), "ERROR");
        server.untilWaiting("unblocked", 1);
        hold.release();
        waiting.get(20, TimeUnit.SECONDS).release();
    }

    @Test
    void a_wait_that_an_operator_ends_goes_on_if_it_has_no_end() throws Exception {
        DLock lock = client.lock("operator");
        Hold hold = lock.acquire();
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        CompletableFuture<Optional<Hold>> timed = lock.tryAcquireAsync(Duration.ofHours(1));
        server.untilWaiting("operator", 2);
        for (Object waiter : server.each("operator", "queue", "client")) {
            server.run("CLIENT", "UNBLOCK", waiter);
        }
        assertEquals(Optional.empty(), timed.get(20, TimeUnit.SECONDS));
        server.untilWaiting("operator", 1);
        hold.release();
        waiting.get(20, TimeUnit.SECONDS).release();
    }

    @Test
    void renewals_go_on_after_a_lost_connection() throws Exception {
        Hold hold = client.lock("renew").withLease(Lease.renewed(Duration.ofSeconds(4))).acquire();
        proxy.cut();
        Thread.sleep(4500);
        assertTrue(hold.isHeld());
        assertTrue(hold.check());
        hold.release();
    }

    @Test
    void a_lock_is_taken_for_lost_one_lease_after_the_last_renewal() throws Exception {
        DLock lock = client.lock("silent").withLease(Lease.renewed(Duration.ofSeconds(3)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        Hold hold = lock.acquire().onLost(lost::complete);
        proxy.silence();
        Stopwatch limit = new Stopwatch();
        long start = System.nanoTime();
        long known = hold.remaining().toNanos();
        lost.get(20, TimeUnit.SECONDS);
        long took = System.nanoTime() - start;
        limit.within(3000);
        assertTrue(took >= known - TimeUnit.MILLISECONDS.toNanos(400), "took " + took + " of " + known);
        proxy.speak();
    }

    @Test
    void a_wait_goes_on_over_a_restart_of_the_server() throws Exception {
        DLock lock = client.lock("restart");
        server.run("DLOCK.ACQUIRE", "restart", "other", "PX", 60_000);
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("restart", 1);
        server.kill();
        server.launch();
        server.untilWaiting("restart", 1);
        server.run("DLOCK.RELEASE", "restart", "other");
        waiting.get(20, TimeUnit.SECONDS).release();
    }

    @Test
    void a_server_that_stays_away_is_an_error_after_the_patience() throws Exception {
        try (DLockClient impatient = TestServer.patient().url(server.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofMillis(1500)).connect()) {
            DLock lock = impatient.lock("away");
            lock.lock();
            CompletableFuture<Hold> waiting = impatient.lock("other").acquireAsync();
            waiting.get(20, TimeUnit.SECONDS);
            server.kill();
            Stopwatch took = new Stopwatch();
            assertThrows(UnavailableException.class, impatient.lock("new")::lock);
            assertThrows(UnavailableException.class, () -> impatient.lock("new").tryLock(1, TimeUnit.SECONDS));
            assertThrows(UnavailableException.class, lock::lock);
            assertEquals(1, lock.getHoldCount());
            assertThrows(UnavailableException.class, lock::unlock);
            assertEquals(0, lock.getHoldCount());
            took.within(15_000);
        }
        assertThrows(UnavailableException.class, () -> DLockClient.connect(server.url()));
    }

    @Test
    void a_release_without_an_answer_is_tried_further() throws Exception {
        try (DLockClient impatient = TestServer.patient().url(proxy.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofMillis(1500)).connect()) {
            Hold hold = impatient.lock("further").acquire();
            server.freeze();
            assertThrows(UnavailableException.class, hold::release);
            server.thaw();
            soon("it is released long before its lease ends", () -> server.isFree("further"));
        }
    }

    /** The thread holds another lock or none, and loses the answer to an unlock or to a lock. */
    @Test
    void a_late_copy_of_an_unanswered_command_does_not_end_the_next_hold() throws Exception {
        try (DLockClient impatient = TestServer.patient().url(server.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofMillis(1200)).connect()) {
            for (boolean nested : new boolean[] {false, true}) {
                DLock outer = impatient.lock("outer");
                DLock lock = impatient.lock("next");
                if (nested) {
                    outer.lock();
                }
                lock.lock();
                String before = lock.hold().owner();
                server.freeze();
                assertThrows(UnavailableException.class, lock::unlock);
                server.thaw();
                lock.lock();
                assertNotEquals(before, lock.hold().owner());
                server.freeze();
                assertThrows(UnavailableException.class, () -> impatient.lock("next:other").lock());
                server.thaw();
                impatient.lock("next:other").lock();
                // The server executes all copies of the unanswered commands before the checks below.
                soon("all answers are there", () -> server.figure("clients", "blocked_clients") == 0);
                Thread.sleep(500);
                assertTrue(lock.hold().check());
                assertTrue(impatient.lock("next:other").hold().check());
                impatient.lock("next:other").unlock();
                lock.unlock();
                if (nested) {
                    outer.unlock();
                }
                soon("nothing is left", () -> server.isFree("next") && server.isFree("next:other"));
            }
        }
    }

    @Test
    void an_uncertain_entry_is_released_with_the_last_one() throws Exception {
        try (DLockClient impatient = TestServer.patient().url(proxy.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofMillis(1500)).connect()) {
            DLock lock = impatient.lock("uncertain");
            lock.lock();
            proxy.silence();
            assertThrows(UnavailableException.class, lock::lock);
            proxy.speak();
            assertEquals(1, lock.getHoldCount());
            assertTrue(server.count("uncertain") > 1);
            // From now on the client counts the entries by itself, and its last unlock releases all of them.
            lock.lock();
            lock.unlock();
            assertTrue(server.count("uncertain") > 0);
            lock.unlock();
            assertTrue(server.isFree("uncertain"));
        }
    }

    @Test
    void an_interrupt_is_obeyed_though_the_server_says_nothing() throws Exception {
        DLock lock = client.lock("deaf");
        Hold hold = lock.acquire();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                lock.lockInterruptibly();
            } catch (InterruptedException e) {
                interrupted.complete(true);
            }
        });
        thread.start();
        server.untilWaiting("deaf", 1);
        server.freeze();
        Stopwatch took = new Stopwatch();
        thread.interrupt();
        interrupted.get(20, TimeUnit.SECONDS);
        took.within(100);
        server.thaw();
        // The request has left the queue all the same.
        server.untilWaiting("deaf", 0);
        hold.release();
        soon("nobody has it", () -> server.isFree("deaf"));
    }

    @Test
    void a_wait_without_an_end_notices_a_server_that_hangs() throws Exception {
        try (DLockClient impatient = TestServer.patient().url(server.url())
                .timeout(Duration.ofMillis(500)).patience(Duration.ofMillis(4000)).connect()) {
            DLock lock = impatient.lock("hangs");
            Hold hold = lock.withLease(Lease.fixed(Duration.ofSeconds(60))).acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("hangs", 1);
            // The request waits on while the server answers, and through a short silence.
            Thread.sleep(4500);
            server.freeze();
            Thread.sleep(700);
            server.thaw();
            Thread.sleep(1000);
            assertFalse(waiting.isDone());
            assertEquals(1, server.waiters("hangs"));
            server.freeze();
            ExecutionException error = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            assertTrue(error.getCause() instanceof UnavailableException, String.valueOf(error));
            server.thaw();
            server.untilWaiting("hangs", 0);
            hold.release();
        }
    }

    @Test
    void a_refused_command_is_not_repeated() {
        server.run("ACL", "SETUSER", "default", "-dlock.racquire");
        long before = server.figure("stats", "total_commands_processed");
        ServerException refused = assertThrows(ServerException.class, client.lock("refused")::lock);
        assertEquals("NOPERM", refused.code());
        assertTrue(server.figure("stats", "total_commands_processed") - before < 5);
    }

    @Test
    void no_lock_is_left_of_a_lost_first_try() {
        DLock lock = client.lock("first");
        server.run("DLOCK.ACQUIRE", "first", "other");
        proxy.loseReplyTo("RACQUIRE");
        assertFalse(lock.tryLock());
        server.run("DLOCK.RELEASE", "first", "other");
        // The server might have granted the lost copy late, so the client releases what it may have got.
        soon("nothing is left", () -> server.isFree("first"));
    }
}
