package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

final class LocksTest {
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
    void a_lock_excludes_other_threads() {
        DLock lock = client.lock("excludes");
        lock.lock();
        assertTrue(lock.isHeldByCurrentThread());
        assertTrue(lock.isLocked());
        assertFalse(elsewhere(() -> lock.tryLock()));
        assertFalse(elsewhere(lock::isHeldByCurrentThread));
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread());
        assertTrue(server.isFree("excludes"));
        assertTrue(elsewhere(() -> {
            boolean locked = lock.tryLock();
            lock.unlock();
            return locked;
        }));
    }

    @Test
    void a_thread_enters_again_and_leaves_as_often() {
        DLock lock = client.lock("again");
        lock.lock();
        long token = lock.fencingToken();
        // A second object of the same client is the same lock.
        DLock same = client.lock("again");
        same.lock();
        assertTrue(lock.tryLock());
        assertEquals(3, lock.getHoldCount());
        assertEquals(3, server.count("again"));
        assertEquals(token, same.fencingToken());
        lock.unlock();
        same.unlock();
        assertEquals(1, server.count("again"));
        lock.unlock();
        assertEquals(0, lock.getHoldCount());
        assertTrue(server.isFree("again"));
    }

    @Test
    void all_locks_of_a_thread_have_the_same_owner() {
        DLock one = client.lock("owner:1");
        DReadWriteLock two = client.readWriteLock("owner:2");
        one.lock();
        two.writeLock().lock();
        String owner = one.hold().owner();
        assertEquals(owner, two.writeLock().hold().owner());
        one.unlock();
        two.readLock().lock();
        two.writeLock().unlock();
        one.lock();
        assertEquals(owner, one.hold().owner());
        one.unlock();
        two.readLock().unlock();
        one.lock();
        assertNotEquals(owner, one.hold().owner());
        one.unlock();
    }

    @Test
    void another_thread_cannot_unlock() {
        DLock lock = client.lock("stranger");
        lock.lock();
        assertThrows(IllegalMonitorStateException.class, () -> elsewhere(() -> {
            lock.unlock();
            return null;
        }));
        assertEquals(1, server.count("stranger"));
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::fencingToken);
    }

    @Test
    void tokens_rise() {
        DLock lock = client.lock("tokens");
        long last = 0;
        for (int i = 0; i < 10; i++) {
            lock.lock();
            assertTrue(lock.fencingToken() > last);
            last = lock.fencingToken();
            assertEquals(last, server.info("tokens").get("token"));
            lock.unlock();
        }
    }

    @Test
    void a_timed_wait_ends_and_leaves_the_queue() throws Exception {
        DLock lock = client.lock("timed");
        try (Hold hold = lock.acquire()) {
            long start = System.nanoTime();
            refused(() -> lock.tryLock(200, TimeUnit.MILLISECONDS));
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(took >= 199, "took " + took + " ms");
            assertEquals(0, server.waiters("timed"));
            assertFalse(lock.tryLock(0, TimeUnit.SECONDS));
            assertFalse(lock.tryLock(-1, TimeUnit.SECONDS));
            refused(() -> lock.tryAcquire(Duration.ofMillis(50)));
            assertTrue(hold.isHeld());
        }
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        lock.unlock();
    }

    @Test
    void a_waiter_is_granted_the_lock_at_its_release() throws Exception {
        DLock lock = client.lock("handoff");
        Hold first = lock.acquire();
        CompletableFuture<Long> second = CompletableFuture.supplyAsync(() -> {
            lock.lock();
            long token = lock.fencingToken();
            lock.unlock();
            return token;
        });
        server.untilWaiting("handoff", 1);
        assertEquals(1, lock.getQueueLength());
        assertFalse(second.isDone());
        first.release();
        assertTrue(second.get(20, TimeUnit.SECONDS) > first.fencingToken());
    }

    @Test
    void waiting_costs_two_commands_however_long_it_lasts() throws Exception {
        DLock lock = client.lock("polls");
        Hold first = lock.withLease(Lease.fixed(Duration.ofSeconds(60))).acquire();
        long before = server.calls("racquire");
        CompletableFuture<Hold> second = lock.acquireAsync();
        server.untilWaiting("polls", 1);
        Thread.sleep(500);
        // Newer servers count a command when its wait ends.
        assertTrue(server.calls("racquire") - before <= 2);
        first.release();
        second.get(20, TimeUnit.SECONDS).release();
        assertEquals(2, server.calls("racquire") - before);
    }

    @Test
    void there_are_no_conditions() {
        assertThrows(UnsupportedOperationException.class, () -> client.lock("conditions").newCondition());
    }

    @Test
    void a_renewed_lock_is_held_beyond_its_first_lease() throws Exception {
        DLock lock = client.lock("renewed").withLease(Lease.renewed(Duration.ofSeconds(2)));
        Queue<LockLostException> lost = new ConcurrentLinkedQueue<>();
        lock.onLost(lost::add);
        long renewals = server.figure("dlock", "dlock_renewals");
        lock.lock();
        soon("it was renewed for longer than a lease", () ->
                server.figure("dlock", "dlock_renewals") - renewals >= 4);
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertTrue(lost.isEmpty());
        assertTrue(server.isFree("renewed"));
        // The lock is not renewed any more.
        long after = server.figure("dlock", "dlock_renewals");
        Thread.sleep(1000);
        assertEquals(after, server.figure("dlock", "dlock_renewals"));
    }

    @Test
    void a_fixed_lease_ends() throws Exception {
        DLock lock = client.lock("fixed").withLease(Lease.fixed(Duration.ofMillis(1000)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        lock.onLost(lost::complete);
        lock.lock();
        assertTrue(lost.get(20, TimeUnit.SECONDS).getMessage().contains("fixed"));
        assertFalse(lock.isHeldByCurrentThread());
        soon("the lease ended on the server, too", () -> server.isFree("fixed"));
        assertThrows(LockLostException.class, lock::lock, "it has not been unlocked");
        assertThrows(LockLostException.class, lock::unlock);
        // After the unlock, the thread can take the lock again.
        lock.lock();
        lock.unlock();
    }

    @Test
    void each_unlock_of_a_lost_lock_reports_the_loss() {
        DLock lock = client.lock("entries");
        lock.lock();
        lock.lock();
        server.run("DEL", "entries");
        assertThrows(LockLostException.class, lock::unlock);
        assertThrows(LockLostException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void a_lost_lock_is_not_entered_again() {
        DLock lock = client.lock("reenter");
        lock.lock();
        server.run("DEL", "reenter");
        assertThrows(LockLostException.class, lock::lock);
        assertTrue(server.isFree("reenter"));
        assertThrows(LockLostException.class, lock::unlock);
        server.run("DLOCK.ACQUIRE", "reenter", "somebody");
        assertFalse(lock.tryLock());
        server.run("DEL", "reenter");
    }

    @Test
    void a_deleted_lock_is_reported_after_a_third_of_the_lease() throws Exception {
        DLock lock = client.lock("deleted").withLease(Lease.renewed(Duration.ofSeconds(3)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        Hold hold = lock.acquire().onLost(lost::complete);
        Stopwatch took = new Stopwatch();
        server.run("DEL", "deleted");
        lost.get(20, TimeUnit.SECONDS);
        took.within(1000);
        assertFalse(hold.isHeld());
        assertEquals(Duration.ZERO, hold.remaining());
        assertThrows(LockLostException.class, hold::release);
        hold.close();
        // A late listener is called at once.
        CompletableFuture<LockLostException> late = new CompletableFuture<>();
        hold.onLost(late::complete);
        assertSame(lost.get(), late.get(20, TimeUnit.SECONDS));
    }

    @Test
    void a_late_release_does_not_touch_the_next_holder() throws Exception {
        DLock lock = client.lock("late");
        Hold late = lock.acquire();
        server.run("DEL", "late");
        Hold next = lock.acquire();
        assertThrows(LockLostException.class, late::release);
        assertEquals(next.fencingToken(), server.info("late").get("token"));
        next.release();
    }

    @Test
    void holds_have_owners_of_their_own() throws Exception {
        DLock lock = client.lock("holds");
        try (Hold hold = lock.acquire()) {
            assertEquals(List.of(hold.owner()), server.each("holds", "holds", "owner"));
            // The lock is not the thread's.
            assertFalse(lock.isHeldByCurrentThread());
            assertFalse(lock.tryLock());
            // Any thread may release it.
            elsewhere(() -> {
                hold.release();
                return null;
            });
            hold.release();
            try (Hold other = lock.acquire()) {
                assertNotEquals(hold.owner(), other.owner());
                assertTrue(other.check());
            }
        }
        assertTrue(server.isFree("holds"));
    }

    @Test
    void extending_sets_the_lease_anew() throws Exception {
        Hold hold = client.lock("extend").withLease(Lease.fixed(Duration.ofSeconds(5))).acquire();
        hold.extend(Duration.ofSeconds(60));
        assertTrue(hold.remaining().compareTo(Duration.ofSeconds(50)) > 0);
        assertTrue((long) server.info("extend").get("ttl") > 50_000);
        server.run("DEL", "extend");
        assertFalse(hold.check());
        assertThrows(LockLostException.class, () -> hold.extend(Duration.ofSeconds(60)));
        assertFalse(hold.isHeld());
    }

    @Test
    void a_lock_granted_after_a_wait_has_its_whole_lease() throws Exception {
        DLock lock = client.lock("whole").withLease(Lease.renewed(Duration.ofSeconds(6)));
        Hold first = lock.acquire();
        CompletableFuture<Hold> second = lock.acquireAsync();
        server.untilWaiting("whole", 1);
        Thread.sleep(2100);
        first.release();
        Hold hold = second.get(20, TimeUnit.SECONDS);
        assertTrue(hold.remaining().toMillis() > 4000);
        hold.release();
    }

    @Test
    void a_lock_of_a_thread_that_ended_is_released() throws Exception {
        DLock lock = client.lock("orphan").withLease(Lease.renewed(Duration.ofSeconds(3)));
        Thread thread = new Thread(lock::lock);
        thread.start();
        thread.join();
        assertEquals(1, server.count("orphan"));
        assertTrue(lock.tryLock(20, TimeUnit.SECONDS));
        lock.unlock();
    }

    @Test
    void waiting_for_oneself_is_a_deadlock() throws Exception {
        DLock left = client.lock("circle:left");
        DLock right = client.lock("circle:right");
        CountDownLatch bothHeld = new CountDownLatch(2);
        CompletableFuture<Boolean> other = CompletableFuture.supplyAsync(() -> {
            left.lock();
            try {
                bothHeld.countDown();
                bothHeld.await();
                right.lock();
                right.unlock();
                return true;
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            } finally {
                left.unlock();
            }
        });
        right.lock();
        bothHeld.countDown();
        server.untilWaiting("circle:right", 1);
        DeadlockException error = assertThrows(DeadlockException.class, left::lock);
        assertEquals("DEADLOCK", error.code());
        right.unlock();
        assertTrue(other.get(20, TimeUnit.SECONDS));
    }

    @Test
    void a_key_of_another_type_is_an_error() {
        server.run("SET", "string", "value");
        ServerException error = assertThrows(ServerException.class, client.lock("string")::lock);
        assertEquals("WRONGTYPE", error.code());
        assertTrue(error.getStackTrace().length > 0
                && List.of(error.getStackTrace()).stream().anyMatch(at -> at.getClassName().equals("dlock.LocksTest")));
        assertEquals("value", Words.text(server.run("GET", "string")));
    }

    @Test
    void a_lock_of_an_old_program_is_waited_for_if_the_client_is_told_so() throws Exception {
        server.run("SET", "before", "old program");
        try (DLockClient beside = TestServer.patient()
                .url(server.url()).besideOldLocks(Duration.ofMillis(20)).connect()) {
            DLock lock = beside.lock("before");
            assertFalse(lock.tryLock());
            refused(() -> lock.tryLock(50, TimeUnit.MILLISECONDS));
            server.run("PEXPIRE", "before", 100);
            lock.lock();
            assertEquals(null, server.run("SET", "before", "old program", "NX"));
            lock.unlock();
        }
    }

    @Test
    void invalid_arguments_are_refused() {
        assertThrows(IllegalArgumentException.class, () -> Lease.session(Duration.ofMillis(299)));
        assertThrows(IllegalArgumentException.class, () -> Lease.fixed(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> Lease.renewed(Duration.ofSeconds(-1)));
        assertThrows(IllegalArgumentException.class, () -> DLockClient.connect("http://127.0.0.1"));
        assertThrows(IllegalArgumentException.class, () -> client.semaphore("s", 0));
        assertThrows(IllegalArgumentException.class, () -> client.lock(""));
        assertThrows(IllegalArgumentException.class, () -> client.lock("a", ""));
        assertThrows(IllegalArgumentException.class, () -> client.readWriteLock(""));
        assertThrows(IllegalArgumentException.class, () -> client.semaphore("", 1));
    }

    @Test
    void a_closed_client_says_so() {
        DLockClient closed = server.client();
        DLock lock = closed.lock("closed");
        closed.close();
        assertThrows(IllegalStateException.class, lock::lock);
    }

    @Test
    void closing_the_client_ends_a_wait() throws Exception {
        DLockClient other = server.client();
        DLock lock = client.lock("closing");
        lock.lock();
        CompletableFuture<Hold> waiting = other.lock("closing").acquireAsync();
        server.untilWaiting("closing", 1);
        other.close();
        Exception failure = assertThrows(Exception.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof UnavailableException, String.valueOf(failure));
        server.untilWaiting("closing", 0);
        lock.unlock();
    }

    @Test
    void the_exception_of_the_work_wins() throws Exception {
        DLock lock = client.lock("work");
        assertEquals(7, lock.withLock(() -> 7));
        lock.withLock(() -> assertEquals(1, lock.getHoldCount()));
        for (Exception thrown : List.of(new IllegalStateException("unchecked"), new java.io.IOException("checked"))) {
            assertSame(thrown, assertThrows(Exception.class, () -> lock.withLock(() -> {
                throw thrown;
            })));
            assertEquals(0, thrown.getSuppressed().length);
            assertSame(thrown, assertThrows(Exception.class, () -> lock.withLock(() -> {
                server.run("DEL", "work");
                throw thrown;
            })));
            assertTrue(thrown.getSuppressed()[0] instanceof LockLostException);
        }
        assertThrows(LockLostException.class, () -> lock.withLock(() -> {
            server.run("DEL", "work");
        }));
        assertEquals(0, lock.getHoldCount());
        assertTrue(server.isFree("work"));
    }

    @Test
    void another_program_goes_on_with_a_hold_that_is_handed_over() throws Exception {
        try (DLockClient other = server.client()) {
            Hold hold = client.lock("over").acquire();
            hold.handOver();
            assertFalse(hold.isHeld());
            DLock there = other.lock("over").withLease(Lease.renewed(Duration.ofMinutes(1)));
            Hold next = there.resume(hold.owner(), hold.fencingToken());
            assertEquals(hold.fencingToken(), next.fencingToken());
            assertTrue(next.remaining().toSeconds() > 50);
            assertEquals(Optional.empty(), client.lock("over").tryAcquire(Duration.ZERO));
            next.release();
            assertTrue(server.isFree("over"));
            assertThrows(LockLostException.class, () -> there.resume(hold.owner(), hold.fencingToken()));
            assertThrows(LockLostException.class, hold::handOver);
            Hold session = client.lock("over").withLease(Lease.session(Duration.ofSeconds(3))).acquire();
            assertThrows(IllegalStateException.class, session::handOver);
            session.release();
            Hold two = client.lock("a", "b").acquire();
            assertThrows(IllegalStateException.class, two::handOver);
            two.release();
            assertThrows(IllegalArgumentException.class, () -> client.lock("a", "b").resume("owner", 1));
        }
    }
}
