package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/** Programs with Redisson's locks beside programs with ours, on one server: what docs/migration.md says of them. */
final class RedissonTest {
    private static TestServer server;
    private static RedissonClient redisson;
    /** Takes a key of another type for an error. */
    private static DLockClient strict;
    /** Takes a key of another type for a held lock. */
    private static DLockClient beside;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        Config config = new Config();
        config.setThreads(8).setNettyThreads(4);
        config.useSingleServer().setAddress(server.url());
        redisson = Redisson.create(config);
        strict = server.client();
        beside = DLockClient.builder().url(server.url()).besideOldLocks(Duration.ofMillis(20)).connect();
    }

    @AfterAll
    static void stop() {
        beside.close();
        strict.close();
        redisson.shutdown();
        server.close();
    }

    @AfterEach
    void empty() {
        server.run("FLUSHALL");
    }

    private static void isWrongType(Throwable thrown) {
        assertTrue(String.valueOf(thrown).contains("WRONGTYPE"), () -> "not WRONGTYPE: " + thrown);
    }

    // Locks that Redisson holds

    private interface Use {
        void run() throws Exception;
    }

    /** Returns steps after which a kind of lock of Redisson has this key. A semaphore has it once its permits are set. */
    private static Map<String, Use> locks(String name) {
        Map<String, Use> locks = new LinkedHashMap<>();
        locks.put("RLock", () -> redisson.getLock(name).lock());
        locks.put("RLock with a lease", () -> redisson.getLock(name).lock(30, TimeUnit.SECONDS));
        locks.put("fair", () -> redisson.getFairLock(name).lock());
        locks.put("spin", () -> redisson.getSpinLock(name).lock());
        locks.put("fenced", () -> redisson.getFencedLock(name).lockAndGetToken());
        locks.put("read", () -> redisson.getReadWriteLock(name).readLock().lock());
        locks.put("write", () -> redisson.getReadWriteLock(name).writeLock().lock());
        locks.put("semaphore", () -> redisson.getSemaphore(name).trySetPermits(1));
        locks.put("expirable semaphore", () -> {
            redisson.getPermitExpirableSemaphore(name).trySetPermits(1);
            redisson.getPermitExpirableSemaphore(name).acquire();
        });
        return locks;
    }

    @Test
    void no_key_that_redisson_holds_is_granted() throws Exception {
        for (Map.Entry<String, Use> lock : locks("job:1").entrySet()) {
            lock.getValue().run();
            assertEquals(1L, server.run("EXISTS", "job:1"), lock.getKey());
            for (Use use : List.<Use>of(
                    () -> strict.lock("job:1").lock(),
                    () -> strict.lock("job:1").tryLock(),
                    () -> strict.lock("job:1").acquire(),
                    () -> strict.lock("job:1", "other").tryLock(),
                    () -> strict.readWriteLock("job:1").readLock().tryLock(),
                    () -> strict.readWriteLock("job:1").writeLock().tryLock(),
                    () -> strict.semaphore("job:1", 5).tryAcquire())) {
                ServerException refusal = assertThrows(ServerException.class, use::run, lock.getKey());
                assertEquals("WRONGTYPE", refusal.code(), lock.getKey());
            }
            refused(() -> beside.lock("job:1").tryLock());
            refused(() -> beside.lock("job:1").tryLock(100, TimeUnit.MILLISECONDS));
            refused(() -> beside.lock("job:1", "other").tryLock());
            refused(() -> beside.readWriteLock("job:1").readLock().tryLock());
            refused(() -> beside.semaphore("job:1", 5).tryAcquire());
            assertTrue(server.isFree("other"));
            assertEquals(1L, server.run("EXISTS", "job:1"), lock.getKey() + " is left as it was");
            server.run("FLUSHALL");
        }
    }

    @Test
    void beside_old_locks_a_wait_ends_when_redisson_unlocks() throws Exception {
        RLock old = redisson.getLock("job:1");
        old.lock();
        CompletableFuture<Hold> waiting = beside.lock("job:1").acquireAsync();
        Thread.sleep(200);
        assertFalse(waiting.isDone());
        old.unlock();
        Hold hold = waiting.get(20, TimeUnit.SECONDS);
        assertEquals(hold.fencingToken(), server.info("job:1").get("token"));
        hold.release();
    }

    // Locks that dlock holds

    @Test
    void no_lock_of_ours_is_granted_to_redisson() throws Exception {
        Hold hold = strict.lock("job:1").acquire();
        for (Map.Entry<String, Use> lock : locks("job:1").entrySet()) {
            isWrongType(assertThrows(RedisException.class, lock.getValue()::run, lock.getKey()));
            assertTrue(hold.check(), lock.getKey());
        }
        RLock old = redisson.getLock("job:1");
        isWrongType(assertThrows(RedisException.class, old::tryLock));
        isWrongType(assertThrows(RedisException.class, () -> old.tryLock(1, 10, TimeUnit.SECONDS)));
        isWrongType(assertThrows(RedisException.class, old::unlock));
        assertFalse(redisson.getMultiLock(old, redisson.getLock("job:2")).tryLock());
        assertTrue(old.isLocked());
        assertTrue(hold.check());
        hold.release();
        old.lock();
        old.unlock();
    }

    /** Redisson deletes the key, as DEL does. */
    @Test
    void only_force_unlock_of_redisson_frees_a_lock_of_ours() throws Exception {
        Hold hold = strict.lock("job:1").acquire();
        assertTrue(redisson.getLock("job:1").forceUnlock());
        assertFalse(hold.check());
    }

    @Test
    void an_unlock_after_the_lease_does_not_free_ours() throws Exception {
        RLock old = redisson.getLock("job:1");
        old.lock(200, TimeUnit.MILLISECONDS);
        Hold hold = beside.lock("job:1").acquire();
        isWrongType(assertThrows(RedisException.class, old::unlock));
        assertTrue(hold.check());
        hold.release();
    }

    /** A thread of Redisson that waits gets an error at its next try, not the lock. */
    @Test
    void a_waiter_of_redisson_fails_when_ours_comes_first() throws Exception {
        redisson.getLock("job:1").lock(5, TimeUnit.SECONDS);
        CompletableFuture<Throwable> waiter = CompletableFuture.supplyAsync(
                () -> assertThrows(RedisException.class, () -> redisson.getLock("job:1").lock()),
                task -> new Thread(task).start());
        soon("it waits", () -> ((List<?>) server.run("PUBSUB", "CHANNELS")).size() == 1);
        server.run("MULTI");
        server.run("DEL", "job:1");
        server.run("DLOCK.ACQUIRE", "job:1", "ours", "PX", 60_000);
        server.run("EXEC");
        isWrongType(waiter.get(20, TimeUnit.SECONDS));
        assertEquals(List.of("ours"), server.each("job:1", "holds", "owner"));
    }

    // Mixed programs

    /** Counts how many are inside at the same time. */
    private static final class Room {
        private final AtomicInteger inside = new AtomicInteger();
        private final AtomicInteger most = new AtomicInteger();
        private final AtomicInteger visits = new AtomicInteger();

        void visit() throws InterruptedException {
            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
            Thread.sleep(2);
            inside.decrementAndGet();
            visits.incrementAndGet();
        }
    }

    private interface Program {
        void run(Room room) throws Exception;
    }

    private static void locked(Lock lock, Room room) throws InterruptedException {
        lock.lock();
        try {
            room.visit();
        } finally {
            lock.unlock();
        }
    }

    /** The old program: Redisson alone. While ours has the key, it fails, and is started again. */
    private static final Program BEFORE = room -> {
        for (;;) {
            try {
                locked(redisson.getLock("job:1"), room);
                return;
            } catch (RedisException e) {
                isWrongType(e);
                Thread.sleep(5);
            }
        }
    };
    /** The new program, with one name for both. */
    private static final Program AFTER = room -> locked(beside.lock("job:1"), room);
    /** Two names, the old lock first. */
    private static final Program BOTH = room -> {
        RLock old = redisson.getLock("job:1");
        old.lock();
        try {
            locked(strict.lock("new:job:1"), room);
        } finally {
            old.unlock();
        }
    };
    private static final Program ONLY_NEW = room -> locked(strict.lock("new:job:1"), room);

    private static Room together(Program... programs) throws Exception {
        Room room = new Room();
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (Program program : programs) {
            for (int i = 0; i < 2; i++) {
                all.add(CompletableFuture.runAsync(() -> {
                    for (int round = 0; round < 10; round++) {
                        try {
                            program.run(room);
                        } catch (Exception e) {
                            throw new AssertionError(e);
                        }
                    }
                }, task -> new Thread(task).start()));
            }
        }
        for (CompletableFuture<Void> each : all) {
            each.get(120, TimeUnit.SECONDS);
        }
        assertEquals(20 * programs.length, room.visits.get());
        return room;
    }

    @Test
    void one_name_never_has_two_owners() throws Exception {
        assertEquals(1, together(BEFORE, AFTER).most.get());
    }

    @Test
    void two_names_exclude_in_each_of_the_two_steps() throws Exception {
        assertEquals(1, together(BEFORE, BOTH).most.get());
        assertEquals(1, together(BOTH, ONLY_NEW).most.get());
    }

    /** Nothing keeps an old program and one that acquires only dlock apart, as docs/migration.md warns. */
    @Test
    void a_skipped_step_excludes_nobody() throws Exception {
        RLock old = redisson.getLock("job:1");
        old.lock();
        assertTrue(elsewhere(() -> {
            boolean granted = strict.lock("new:job:1").tryLock();
            strict.lock("new:job:1").unlock();
            return granted;
        }));
        old.unlock();
    }

    // Differences

    @Test
    void re_entry_shortens_a_lease_of_redisson_and_none_of_ours() throws Exception {
        RLock old = redisson.getLock("lease");
        old.lock(60, TimeUnit.SECONDS);
        old.lock(1, TimeUnit.SECONDS);
        assertTrue((long) server.run("PTTL", "lease") <= 1000);
        server.run("DEL", "lease");
        Lease minute = Lease.fixed(Duration.ofMinutes(1));
        strict.lock("lease").withLease(minute).lock();
        strict.lock("lease").withLease(Lease.fixed(Duration.ofSeconds(1))).lock();
        assertTrue((long) server.run("PTTL", "lease") > 50_000);
        strict.lock("lease").unlock();
        strict.lock("lease").unlock();
    }

    /** A re-entry raises the token of Redisson, and any caller reads the latest one. */
    @Test
    void tokens_of_redisson_are_far_lower_and_anybody_reads_the_latest() throws Exception {
        RFencedLock old = redisson.getFencedLock("fenced");
        long first = old.lockAndGetToken();
        old.lock();
        assertEquals(first + 1, old.getToken(), "re-entry raises it");
        assertEquals(first + 1, elsewhere(() -> redisson.getFencedLock("fenced").getToken()), "anybody reads it");
        server.run("FLUSHALL");
        try (Hold hold = strict.lock("fenced").acquire()) {
            assertTrue(hold.fencingToken() > 1_000_000 * first);
        }
        assertTrue(server.isFree("fenced"));
    }

    /** dlock upgrades the only reader at once. With Redisson, the thread waits for its own read lock. */
    @Test
    void the_only_reader_may_write_with_dlock_and_not_with_redisson() throws Exception {
        DReadWriteLock lock = strict.readWriteLock("upgrade");
        lock.readLock().lock();
        assertTrue(lock.writeLock().tryLock());
        lock.writeLock().unlock();
        lock.readLock().unlock();
        redisson.getReadWriteLock("upgrade").readLock().lock();
        assertFalse(redisson.getReadWriteLock("upgrade").writeLock().tryLock(300, TimeUnit.MILLISECONDS));
    }
}
