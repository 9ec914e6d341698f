package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** A session in a cluster: each node that has locks of the session gets heartbeats. */
final class ClusterSessionTest {
    private static List<Hold> holds(DLockClient client, Session session, int number) throws Exception {
        List<Hold> holds = new ArrayList<>();
        for (int i = 0; i < number; i++) {
            holds.add(client.lock("job:" + i).withLease(Lease.of(session)).acquire());
        }
        return holds;
    }

    private static Object sessionOf(TestServer server, String name) {
        List<Object> sessions = server.each(name, "holds", "session");
        return sessions.isEmpty() ? null : sessions.get(0);
    }

    private static LockLostException soonLost(Hold hold) throws Exception {
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        return lost.get(60, TimeUnit.SECONDS);
    }

    @Test
    void heartbeats_to_each_node_keep_all_locks() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            Session session = client.openSession(Duration.ofSeconds(8));
            List<Hold> holds = holds(client, session, 30);
            Set<String> ids = new HashSet<>();
            for (Hold hold : holds) {
                String name = hold.names().get(0);
                ids.add(Words.text(sessionOf(cluster.with(name), name)));
            }
            assertEquals(2, ids.size(), "a session on each node");
            // Longer than the timeout: only heartbeats keep the locks.
            Thread.sleep(9000);
            for (Hold hold : holds) {
                assertTrue(hold.isHeld() && hold.check() && hold.remaining().toMillis() <= 8000);
            }
            assertEquals(1, cluster.first.figure("dlock", "dlock_named_sessions"));
            session.close();
            for (Hold hold : holds) {
                String name = hold.names().get(0);
                assertTrue(cluster.with(name).isFree(name), name);
            }
            assertThrows(LockLostException.class, holds.get(0)::release);
            DLock lock = client.lock("job").withLease(Lease.of(session));
            assertThrows(IllegalStateException.class, lock::lock);
        }
    }

    @Test
    void a_lock_whose_slot_moves_is_bound_on_the_other_node() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            Session session = client.openSession(Duration.ofSeconds(8));
            Hold hold = client.lock("moves").withLease(Lease.of(session)).acquire();
            List<Hold> others = holds(client, session, 10);
            for (int round = 0; round < 2; round++) {
                TestServer there = cluster.migrate("moves");
                soon("the lock is bound on the other node", () -> sessionOf(there, "moves") != null);
                assertEquals(hold.fencingToken(), there.info("moves").get("token"));
                // Longer than the timeout.
                Thread.sleep(8500);
                assertTrue(hold.isHeld() && hold.check());
            }
            // The client does not learn that this slot moves.
            cluster.move("new");
            Hold fresh = client.lock("new").withLease(Lease.of(session)).acquire();
            assertNotEquals(null, sessionOf(cluster.with("new"), "new"));
            hold.release();
            fresh.release();
            for (Hold other : others) {
                other.release();
            }
            assertTrue(session.isOpen());
        }
    }

    @Test
    void a_node_that_fails_costs_only_its_own_locks() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            Session session = client.openSession(Duration.ofSeconds(6));
            List<Hold> holds = holds(client, session, 20);
            List<Hold> gone = holds.stream()
                    .filter(hold -> cluster.with(hold.names().get(0)) == cluster.second).collect(Collectors.toList());
            holds.removeAll(gone);
            assertFalse(gone.isEmpty() || holds.isEmpty());
            cluster.second.freeze();
            Stopwatch took = new Stopwatch();
            for (Hold hold : gone) {
                soonLost(hold);
            }
            // The timeout of 6 s, and 250 ms for the program.
            took.within(6250);
            assertTrue(holds.stream().allMatch(Hold::isHeld) && session.isOpen() && !session.lost().isDone());
            cluster.second.thaw();
            Hold again = client.lock(gone.get(0).names().get(0)).withLease(Lease.of(session)).acquire();
            assertTrue(again.check());
        }
    }

    /** A node that stood still may grant the lock after the client has given up the session on that node. */
    @Test
    void a_lock_whose_session_on_its_node_ended_before_the_grant_is_held_or_reported_lost() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            Session session = client.openSession(Duration.ofMillis(6000));
            List<Hold> holds = holds(client, session, 20);
            Hold there = holds.stream()
                    .filter(hold -> cluster.with(hold.names().get(0)) == cluster.second).findFirst().orElseThrow();
            String free = IntStream.range(0, 100).mapToObj(number -> "free:" + number)
                    .filter(name -> cluster.with(name) == cluster.second).findFirst().orElseThrow();
            DLock lock = client.lock(free).withLease(Lease.of(session));
            cluster.second.freeze();
            CompletableFuture<Optional<Hold>> asked = lock.tryAcquireAsync(Duration.ofSeconds(60));
            soonLost(there);
            cluster.second.thaw();
            Hold hold = asked.get(60, TimeUnit.SECONDS).orElseThrow();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold.onLost(lost::complete);
            soon("the lock is held, or reported lost", () -> hold.isHeld() || lost.isDone());
            // The lease, which is LEASES timeouts, and some time more: unless a session keeps the hold, it lapses.
            Thread.sleep(Session.LEASES * 6000 + 500);
            soon("the lock is held on the server, too, or reported lost", () -> lost.isDone()
                    || hold.isHeld() && cluster.second.each(free, "holds", "owner").contains(hold.owner()));
        }
    }

    /** The client still takes the former primary for the primary, and has no session there yet. */
    @Test
    void a_session_begins_on_the_next_primary() throws Exception {
        try (TestCluster cluster = new TestCluster(); TestServer replica = cluster.replica();
                DLockClient client = cluster.client()) {
            String name = IntStream.range(0, 100).mapToObj(number -> "job:" + number)
                    .filter(job -> cluster.with(job) == cluster.second).findFirst().orElseThrow();
            Session session = client.openSession(Duration.ofSeconds(15));
            // A new session opens on the node that has the slot of its id.
            while (cluster.with(session.id()) == cluster.second) {
                session.close();
                session = client.openSession(Duration.ofSeconds(15));
            }
            client.lock(name).acquire().release();
            replica.run("CLUSTER", "FAILOVER", "TAKEOVER");
            soon("the former primary is a replica", () ->
                    Words.text(((List<?>) cluster.second.run("ROLE")).get(0)).equals("slave"));
            Hold hold = client.lock(name).withLease(Lease.of(session)).tryAcquire(Duration.ZERO).orElseThrow();
            assertTrue(sessionOf(replica, name) != null);
            hold.release();
        }
    }

    @Test
    void locks_are_bound_on_the_next_primary() throws Exception {
        try (TestCluster cluster = new TestCluster(); TestServer replica = cluster.replica();
                DLockClient client = cluster.client()) {
            Session session = client.openSession(Duration.ofSeconds(15));
            List<Hold> holds = holds(client, session, 20);
            List<String> there = holds.stream().map(hold -> hold.names().get(0))
                    .filter(name -> cluster.with(name) == cluster.second).collect(Collectors.toList());
            soon("the replica has the locks", () -> (long) replica.run("DBSIZE") == there.size());
            cluster.second.kill();
            replica.run("CLUSTER", "FAILOVER", "TAKEOVER");
            for (String name : there) {
                soon(name + " is bound", () -> sessionOf(replica, name) != null);
            }
            for (Hold hold : holds) {
                assertTrue(hold.isHeld() && hold.check());
                hold.release();
            }
            assertTrue(session.isOpen());
        }
    }
}
