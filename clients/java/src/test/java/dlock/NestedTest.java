package dlock;

import static dlock.TestServer.elsewhere;
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
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Locks whose names overlap, nested in one thread: no unlock frees what another lock of the thread still holds. */
final class NestedTest {
    private static TestServer server;
    private static DLockClient client;
    private static Session session;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        client = server.client();
        session = client.openSession(Duration.ofSeconds(5));
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    /** Returns whether another thread cannot lock the name. */
    private static boolean isTaken(String name) {
        return !elsewhere(() -> {
            DLock lock = client.lock(name);
            boolean locked = lock.tryLock();
            if (locked) {
                lock.unlock();
            }
            return locked;
        });
    }

    @Test
    void a_lock_of_one_name_inside_a_lock_of_several() {
        DLock both = client.lock("in:a", "in:b");
        DLock one = client.lock("in:a");
        both.lock();
        assertTrue(one.tryLock());
        one.lock();
        assertEquals(both.fencingToken(), one.fencingToken());
        assertEquals(2, one.getHoldCount());
        one.unlock();
        one.unlock();
        assertThrows(IllegalMonitorStateException.class, one::unlock);
        assertTrue(both.isHeldByCurrentThread());
        assertTrue(isTaken("in:a") && isTaken("in:b"));
        both.unlock();
        assertTrue(server.isFree("in:a") && server.isFree("in:b"));
    }

    @Test
    void a_lock_of_several_names_inside_a_lock_of_one() throws Exception {
        DLock both = client.lock("out:a", "out:b");
        DLock one = client.lock("out:a");
        one.lock();
        assertTrue(both.tryLock(20, TimeUnit.SECONDS));
        both.lock();
        assertEquals(2, both.getHoldCount());
        assertTrue(both.isHeldByCurrentThread() && isTaken("out:a") && isTaken("out:b"));
        // The greater token fences both: no other owner had one of the names after the last grant.
        assertTrue(both.fencingToken() >= one.fencingToken());
        assertEquals(both.fencingToken(), server.info("out:b").get("token"));
        // The lock of several names consists of two holds: that of the outer lock, and a new one for the other name.
        assertThrows(IllegalStateException.class, both::hold);
        both.unlock();
        both.unlock();
        assertTrue(isTaken("out:a"));
        assertTrue(server.isFree("out:b"));
        one.unlock();
        assertTrue(server.isFree("out:a"));
    }

    @Test
    void the_order_of_the_names_does_not_matter() {
        DLock lock = client.lock("order:a", "order:b");
        lock.lock();
        DLock same = client.lock("order:b", "order:a");
        assertTrue(same.tryLock());
        assertEquals(2, lock.getHoldCount());
        same.unlock();
        lock.unlock();
        assertTrue(server.isFree("order:a") && server.isFree("order:b"));
    }

    @Test
    void what_the_inner_lock_needs_stays_when_the_outer_one_is_unlocked_first() throws Exception {
        Duration time = Duration.ofSeconds(5);
        List<Function<Duration, Lease>> kinds = List.of(Lease::renewed, Lease::session, ignored -> Lease.of(session));
        for (int i = 0; i < kinds.size(); i++) {
            String a = "first:a" + i;
            String b = "first:b" + i;
            DLock both = client.lock(a, b).withLease(kinds.get(i).apply(time));
            DLock one = client.lock(a);
            both.lock();
            one.lock();
            both.unlock();
            assertFalse(both.isHeldByCurrentThread());
            assertTrue(server.isFree(b), b);
            // The sleep outlasts the lease and the timeout of the session: something still renews the hold.
            Thread.sleep(6000);
            assertTrue(one.isHeldByCurrentThread(), one.toString());
            assertTrue(isTaken(a));
            assertEquals(List.of(a), one.hold().names());
            one.unlock();
            assertTrue(server.isFree(a));
        }
    }

    @Test
    void a_hold_that_is_lost_is_lost_for_every_lock_of_the_thread_that_uses_it() throws Exception {
        DLock both = client.lock("lost:a", "lost:b").withLease(Lease.renewed(Duration.ofMillis(900)));
        CompletableFuture<LockLostException> told = new CompletableFuture<>();
        DLock one = client.lock("lost:a").onLost(told::complete);
        both.lock();
        one.lock();
        server.run("DEL", "lost:b");
        told.get(20, TimeUnit.SECONDS);
        assertFalse(one.isHeldByCurrentThread());
        assertThrows(LockLostException.class, () -> client.lock("lost:a", "lost:c").lock());
        assertTrue(server.isFree("lost:c"));
        assertThrows(LockLostException.class, one::unlock);
        assertThrows(LockLostException.class, both::unlock);
        soon("lost:a is released", () -> server.isFree("lost:a"));
        one.lock();
        one.unlock();
    }

    @Test
    void a_lock_that_was_unlocked_is_not_told_of_a_later_loss() throws Exception {
        List<LockLostException> told = new ArrayList<>();
        DLock both = client.lock("told:a", "told:b").withLease(Lease.renewed(Duration.ofMillis(900)));
        DLock one = client.lock("told:a").onLost(told::add);
        both.lock();
        one.lock();
        one.unlock();
        CompletableFuture<LockLostException> outer = new CompletableFuture<>();
        both.hold().onLost(outer::complete);
        server.run("DEL", "told:b");
        outer.get(20, TimeUnit.SECONDS);
        assertThrows(LockLostException.class, both::unlock);
        assertEquals(List.of(), told);
    }

    @Test
    void in_any_order_of_locking_and_unlocking_the_server_has_exactly_the_names_needed() {
        for (long seed = 1; seed <= 6; seed++) {
            Random random = new Random(seed);
            String run = "random:" + seed + ":";
            List<List<String>> sets = List.of(List.of("a"), List.of("b"), List.of("a", "b"), List.of("b", "c"),
                    List.of("a", "b", "c"), List.of("c", "a"));
            Map<DLock, Integer> entries = new LinkedHashMap<>();
            for (List<String> names : sets) {
                String[] more = names.stream().skip(1).map(name -> run + name).toArray(String[]::new);
                entries.put(client.lock(run + names.get(0), more), 0);
            }
            List<DLock> locks = new ArrayList<>(entries.keySet());
            for (int step = 0; step < 60; step++) {
                DLock lock = locks.get(random.nextInt(locks.size()));
                if (random.nextBoolean() && entries.get(lock) < 3) {
                    assertTrue(lock.tryLock(), lock.toString());
                    entries.merge(lock, 1, Integer::sum);
                } else if (entries.get(lock) > 0) {
                    lock.unlock();
                    entries.merge(lock, -1, Integer::sum);
                } else {
                    assertThrows(IllegalMonitorStateException.class, lock::unlock);
                }
                checkNames(entries, "seed " + seed + ", step " + step);
            }
            entries.forEach((lock, count) -> {
                for (int i = 0; i < count; i++) {
                    lock.unlock();
                }
            });
            for (String name : List.of("a", "b", "c")) {
                assertTrue(server.isFree(run + name));
            }
        }
    }

    /** Checks each lock's own count, and that the server has a name exactly while a lock with that name is entered. */
    private static void checkNames(Map<DLock, Integer> entries, String when) {
        Map<String, Boolean> names = new LinkedHashMap<>();
        entries.forEach((lock, count) -> {
            assertEquals(count, lock.getHoldCount(), when);
            assertEquals(count > 0, lock.isHeldByCurrentThread(), when);
            lock.names().forEach(name -> names.merge(name, count > 0, Boolean::logicalOr));
        });
        names.forEach((name, needed) -> assertEquals(!needed, server.isFree(name), when + ": " + name));
    }
}
