package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests of named sessions, in which one heartbeat keeps all locks of a program. */
final class NamedSessionTest {
    private static final Duration TIMEOUT = Duration.ofSeconds(6);

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

    /** Acquires the locks {@code job:0}, {@code job:1} and so on with the session. */
    private static List<Hold> holds(DLockClient client, Session session, int number) throws Exception {
        List<Hold> holds = new ArrayList<>();
        for (int i = 0; i < number; i++) {
            holds.add(client.lock("job:" + i).withLease(Lease.of(session)).acquire());
        }
        return holds;
    }

    /** Returns how many holds the server has bound to a session; -1 if the server does not know the session. */
    private static int bound(TestServer server, Session session) {
        List<?> holds = (List<?>) server.run("DLOCK.SESSION", session.id(), "LIST", "COUNT", 0);
        return holds == null ? -1 : holds.size();
    }

    private static CompletableFuture<LockLostException> lost(Hold hold) {
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        return lost;
    }

    /** Waits until a hold is lost. Fails after a minute. */
    private static LockLostException soonLost(Hold hold) throws Exception {
        return lost(hold).get(60, TimeUnit.SECONDS);
    }

    /** Asserts that all locks are free for others, even if the server has not deleted all of their keys yet. */
    private static void areFree(TestServer server, List<Hold> holds) {
        for (Hold hold : holds) {
            hold.names().forEach(name -> assertTrue(server.isFree(name), name));
        }
    }

    @Test
    void one_heartbeat_keeps_all_locks() throws Exception {
        Session session = client.openSession(TIMEOUT);
        List<Hold> holds = holds(client, session, 40);
        assertTrue((long) server.run("PTTL", "job:0") > 12_000, "the lease is not three times the timeout of 6 s");
        server.run("CONFIG", "RESETSTAT");
        long began = System.nanoTime();
        soon("time goes by", () -> (long) server.run("PTTL", "job:0") < 15_000);
        soon("the server renews the lease", () -> (long) server.run("PTTL", "job:0") > 15_000);
        long beats = server.calls("session");
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began);
        // A heartbeat is due every two seconds. On a busy machine a late one is repeated: five more are accepted.
        assertTrue(beats >= 2 && beats <= seconds / 2 + 5, beats + " heartbeats in " + seconds + " s");
        assertEquals(0, server.calls("renew"));
        for (Hold hold : holds) {
            assertTrue(hold.isHeld() && hold.remaining().compareTo(TIMEOUT) <= 0);
        }
        assertTrue(holds.get(0).check());
        holds.get(0).extend(Duration.ofMillis(1));
        assertTrue((long) server.run("PTTL", "job:0") > 6000, "extend made the lease shorter than the session's");
        holds.get(0).release();
        assertEquals(39, bound(server, session));
        session.close();
        areFree(server, holds);
    }

    @Test
    void closing_frees_everything_in_one_command() throws Exception {
        // The timeout is so long that no heartbeat is among the commands counted below.
        Session session = client.openSession(Duration.ofMinutes(2));
        List<Hold> holds = holds(client, session, 20);
        server.run("CONFIG", "RESETSTAT");
        session.close();
        areFree(server, holds);
        assertEquals(1, server.calls("session"));
        assertEquals(0, server.calls("release"));
        for (Hold hold : holds) {
            assertFalse(hold.isHeld());
            assertTrue(soonLost(hold).getMessage().contains("closed"));
            assertThrows(LockLostException.class, hold::release);
        }
        assertFalse(session.lost().isDone() || session.isOpen());
        DLock lock = client.lock("job").withLease(Lease.of(session));
        assertTrue(assertThrows(IllegalStateException.class, lock::lock).getMessage().contains("closed"));
        session.close();
    }

    @Test
    void locks_outlive_every_connection() throws Exception {
        Session session = client.openSession(TIMEOUT);
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        for (int round = 0; round < 3; round++) {
            server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            long before = server.calls("session");
            soon("a heartbeat follows", () -> server.calls("session") > before);
        }
        assertTrue(hold.isHeld() && hold.check() && session.isOpen());
        hold.release();
        session.close();
    }

    @Test
    void a_hung_server_costs_the_locks_after_the_timeout() throws Exception {
        Session session = client.openSession(Duration.ofSeconds(4));
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        server.freeze();
        try {
            Stopwatch took = new Stopwatch();
            soonLost(hold);
            session.lost().get(60, TimeUnit.SECONDS);
            took.within(4000);
            assertFalse(hold.isHeld() || session.isOpen());
            DLock lock = client.lock("other").withLease(Lease.of(session));
            assertTrue(assertThrows(IllegalStateException.class, lock::lock).getMessage().contains("no heartbeat"));
            session.close();
        } finally {
            server.thaw();
        }
        soon("the server ends the session, too", () -> server.isFree("job"));
    }

    @Test
    void a_short_hang_costs_nothing() throws Exception {
        Session session = client.openSession(Duration.ofSeconds(12));
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        server.freeze();
        Thread.sleep(2500);
        server.thaw();
        long before = server.calls("session");
        soon("heartbeats go on", () -> server.calls("session") > before + 1);
        assertTrue(hold.isHeld() && hold.check());
    }

    @Test
    void after_a_restart_locks_are_bound_again_or_lost() throws Exception {
        try (TestServer saved = TestServer.start("--appendonly", "yes", "--appendfsync", "always");
                DLockClient its = saved.client()) {
            Session session = its.openSession(Duration.ofSeconds(12));
            Hold kept = its.lock("kept").withLease(Lease.of(session)).acquire();
            Hold gone = its.lock("gone").withLease(Lease.of(session)).acquire();
            saved.kill();
            saved.launch();
            saved.run("DEL", "gone");
            soonLost(gone);
            soon("the hold that was kept is bound again", () -> bound(saved, session) == 1);
            assertTrue(kept.isHeld() && kept.check() && session.isOpen());
            its.lock("new").withLease(Lease.of(session)).lock();
            session.close();
            assertEquals(0L, saved.run("DBSIZE"));
        }
    }

    @Test
    void after_a_failover_locks_are_bound_on_the_next_primary() throws Exception {
        try (TestServer replica = TestServer.start()) {
            replica.run("REPLICAOF", "127.0.0.1", server.port);
            soon("the replica is connected", () -> server.figure("replication", "connected_slaves") == 1);
            try (TestServer sentinel = TestServer.sentinel("main", server.port);
                    DLockClient its = TestServer.connected("redis-sentinel://127.0.0.1:" + sentinel.port + "/main")) {
                Session session = its.openSession(Duration.ofSeconds(40));
                List<Hold> holds = holds(its, session, 120);
                soon("the replica has all locks", () -> (long) replica.run("DBSIZE") == 120);
                server.kill();
                soon("the replica takes over", () -> new String(
                        (byte[]) replica.run("INFO", "replication"), StandardCharsets.UTF_8).contains("role:master"));
                soon("all holds are bound on the replica", () -> bound(replica, session) == 120);
                assertTrue(holds.stream().allMatch(Hold::isHeld) && holds.get(119).check());
                session.close();
                areFree(replica, holds);
            }
        }
    }

    @Test
    void a_deleted_lock_is_lost_with_the_next_heartbeat() throws Exception {
        Session session = client.openSession(TIMEOUT);
        List<Hold> holds = holds(client, session, 2);
        server.run("DEL", "job:1");
        Stopwatch took = new Stopwatch();
        soonLost(holds.get(1));
        took.within(3000); // A heartbeat is due every two seconds.
        assertTrue(holds.get(0).isHeld() && session.isOpen());
    }

    @Test
    void a_session_that_an_operator_closed_is_opened_again() throws Exception {
        Session session = client.openSession(TIMEOUT);
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        server.run("DLOCK.SESSION", session.id(), "CLOSE");
        DLock other = client.lock("other").withLease(Lease.of(session));
        assertTrue(other.tryLock(20, TimeUnit.SECONDS), "the acquisition has not opened the session again");
        soonLost(hold);
        assertEquals(1, bound(server, session));
        assertTrue(session.isOpen() && other.isHeldByCurrentThread());
    }

    @Test
    void a_wait_outlives_its_session_on_the_server() throws Exception {
        Session session = client.openSession(TIMEOUT);
        server.run("DLOCK.ACQUIRE", "job", "somebody");
        CompletableFuture<Hold> waiting = client.lock("job").withLease(Lease.of(session)).acquireAsync();
        for (int round = 0; round < 2; round++) {
            server.untilWaiting("job", 1);
            server.run("DLOCK.SESSION", session.id(), "CLOSE");
            soon("the request waits again", () -> server.waiters("job") == 1 && bound(server, session) >= 0);
        }
        server.run("DLOCK.RELEASE", "job", "somebody");
        Hold hold = waiting.get(60, TimeUnit.SECONDS);
        soon("the granted hold is bound", () -> bound(server, session) == 1);
        assertTrue(hold.isHeld() && hold.check());
    }

    @Test
    void a_release_that_failed_is_repeated() throws Exception {
        Session session = client.openSession(TIMEOUT);
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        server.run("CONFIG", "SET", "min-replicas-to-write", 1);
        assertEquals("NOREPLICAS", assertThrows(ServerException.class, hold::release).code());
        server.run("CONFIG", "SET", "min-replicas-to-write", 0);
        soon("the session repeats the release", () -> server.isFree("job"));
        assertTrue(session.isOpen());
    }

    @Test
    void only_beats_keep_a_manual_session() throws Exception {
        Session session = client.openManualSession(TIMEOUT);
        Hold hold = client.lock("job").withLease(Lease.of(session)).acquire();
        long end = System.nanoTime() + TIMEOUT.plusSeconds(2).toNanos();
        while (System.nanoTime() - end < 0) {
            session.beat();
            assertTrue(hold.isHeld());
            Thread.sleep(20);
        }
        Stopwatch took = new Stopwatch();
        soonLost(hold);
        took.within(TIMEOUT.toMillis() + 1000);
        soon("the server frees the lock", () -> server.isFree("job"));
    }

    @Test
    void threads_and_all_kinds_of_locks_share_a_session() throws Exception {
        Session session = client.openSession(TIMEOUT);
        Lease lease = Lease.of(session);
        DLock again = client.lock("again").withLease(lease);
        again.lock();
        again.lock();
        DLock both = client.lock("a", "b").withLease(lease);
        both.lock();
        DSemaphore pool = client.semaphore("pool", 5).withLease(lease);
        pool.acquire(3);
        client.readWriteLock("doc").withLease(lease).readLock().lock();
        assertEquals(5, bound(server, session));
        boolean granted = elsewhere(again::tryLock);
        assertFalse(granted);
        assertTrue(elsewhere(() -> {
            DLock other = client.lock("other").withLease(lease);
            other.lock();
            boolean held = other.isHeldByCurrentThread();
            other.unlock();
            return held;
        }));
        again.unlock();
        assertTrue(again.isHeldByCurrentThread());
        again.unlock();
        assertTrue(server.isFree("again"));
        pool.release(3);
        server.run("DEL", "b");
        soonLost(both.hold());
        session.close();
        assertEquals(0L, server.run("DBSIZE"));
    }

    @Test
    void a_thread_that_ends_loses_its_lock_and_the_session_stays() throws Exception {
        Session session = client.openSession(TIMEOUT);
        elsewhere(() -> {
            client.lock("job").withLease(Lease.of(session)).lock();
            return null;
        });
        soon("the lock of the thread that ended is free", () -> server.isFree("job"));
        assertTrue(session.isOpen());
    }

    @Test
    void closing_the_client_closes_its_sessions() throws Exception {
        DLockClient other = server.client();
        Session session = other.openSession(TIMEOUT);
        other.lock("job").withLease(Lease.of(session)).lock();
        other.close();
        assertEquals(-1, bound(server, session));
        assertTrue(server.isFree("job") && !session.isOpen());
    }

    @Test
    void a_session_accepts_only_what_it_can_keep() {
        for (long millis : new long[] {299, 3_600_001}) {
            assertThrows(IllegalArgumentException.class, () -> client.openSession(Duration.ofMillis(millis)));
        }
        try (DLockClient other = server.client()) {
            Lease lease = Lease.of(other.openSession(TIMEOUT));
            assertThrows(IllegalArgumentException.class, () -> client.lock("job").withLease(lease));
            assertThrows(IllegalArgumentException.class, () -> client.semaphore("job", 2).withLease(lease));
        }
    }

    @Test
    void without_a_server_a_session_does_not_open() {
        DLockClient impatient = DLockClient.connect(server.url());
        server.freeze();
        try (impatient) {
            Stopwatch took = new Stopwatch();
            assertThrows(UnavailableException.class, () -> impatient.openSession(TIMEOUT));
            took.within(1000);
        } finally {
            server.thaw();
        }
        assertTrue(client.openSession(TIMEOUT).isOpen());
    }

    @Test
    void thousands_of_locks_of_a_session_stay_for_two_leases() throws Exception {
        // The timeout is 5 s, because a busy machine that delays the heartbeats for longer than that ends the session.
        Session session = client.openSession(Duration.ofSeconds(5));
        List<CompletableFuture<Hold>> all = new ArrayList<>();
        for (int i = 0; i < 3000; i++) {
            all.add(client.lock("many:" + i).withLease(Lease.of(session)).acquireAsync());
        }
        List<String> lost = java.util.Collections.synchronizedList(new ArrayList<>());
        for (CompletableFuture<Hold> each : all) {
            each.get(60, TimeUnit.SECONDS).onLost(loss -> lost.add(loss.getMessage()));
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * Session.LEASES * 5);
        while (System.nanoTime() < end && lost.isEmpty()) {
            Thread.sleep(100);
        }
        assertEquals(List.of(), lost.subList(0, Math.min(3, lost.size())), lost.size() + " locks are lost");
        assertTrue(session.isOpen());
        assertEquals(3000, server.figure("dlock", "dlock_sessions"));
        session.close();
    }

    /** A hold that the client counts as lost would otherwise live on the server for as long as the session. */
    @Test
    void a_hold_that_counts_as_lost_is_released() throws Exception {
        Session session = client.openSession(TIMEOUT);
        List<Hold> holds = holds(client, session, 3);
        holds.get(0).lose("for this test", null);
        soon("the first lost hold is released", () -> server.isFree("job:0"));
        assertTrue(session.isOpen() && holds.get(1).isHeld() && !server.isFree("job:1"));
        // A lost hold is released even if no server answers for a while.
        server.freeze();
        holds.get(1).lose("for this test", null);
        Thread.sleep(500);
        server.thaw();
        soon("the second lost hold is released", () -> server.isFree("job:1"));
        assertTrue(session.isOpen() && !server.isFree("job:2"));
        session.close();
    }
}
