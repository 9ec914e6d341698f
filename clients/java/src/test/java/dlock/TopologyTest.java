package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Sentinel and clusters. */
final class TopologyTest {

    @Test
    void a_failover_by_sentinel_is_followed() throws Exception {
        try (TestServer primary = TestServer.start();
                TestServer replica = TestServer.start("--replicaof", "127.0.0.1 " + primary.port);
                TestServer sentinel = TestServer.sentinel("main", primary.port)) {
            String url = "redis-sentinel://127.0.0.1:1,127.0.0.1:" + sentinel.port + "/main";
            try (DLockClient client = TestServer.patient().url(url).timeout(Duration.ofSeconds(2))
                    .patience(Duration.ofSeconds(60)).connect()) {
                DLock lock = client.lock("failover");
                Hold hold = lock.acquire();
                assertEquals(hold.fencingToken(), primary.info("failover").get("token"));
                CompletableFuture<Hold> waiting = lock.acquireAsync();
                primary.untilWaiting("failover", 1);
                Object token = hold.fencingToken();
                soon("the replica has it", () -> token.equals(replica.info("failover").get("token")));
                primary.kill();
                // The wait goes on at the new primary, and so do renewals.
                replica.untilWaiting("failover", 1);
                assertTrue(hold.check());
                hold.release();
                Hold next = waiting.get(20, TimeUnit.SECONDS);
                assertTrue(next.fencingToken() > hold.fencingToken());
                assertEquals(next.fencingToken(), replica.info("failover").get("token"));
                next.release();
            }
            DLockClient.Builder unknown = TestServer.patient()
                    .url("redis-sentinel://127.0.0.1:" + sentinel.port + "/other");
            UnavailableException error = assertThrows(UnavailableException.class, unknown::connect);
            assertTrue(error.getMessage().contains("other"), error.getMessage());
        }
    }

    @Test
    void a_waiter_leaves_a_primary_that_hangs() throws Exception {
        try (TestServer primary = TestServer.start();
                TestServer replica = TestServer.start("--replicaof", "127.0.0.1 " + primary.port);
                TestServer sentinel = TestServer.sentinel("main", primary.port)) {
            String url = "redis-sentinel://127.0.0.1:" + sentinel.port + "/main";
            try (DLockClient client = TestServer.patient().url(url).timeout(Duration.ofSeconds(1)).connect()) {
                DLock lock = client.lock("hangs");
                primary.run("DLOCK.ACQUIRE", "hangs", "other", "PX", 600_000);
                soon("the replica has it", () -> primary.run("WAIT", 1, 100).equals(1L));
                CompletableFuture<Hold> waiting = lock.acquireAsync();
                CompletableFuture<Optional<Hold>> limited = lock.tryAcquireAsync(Duration.ofSeconds(60));
                primary.untilWaiting("hangs", 2);
                primary.freeze();
                try {
                    replica.untilWaiting("hangs", 2);
                    replica.run("DLOCK.RELEASE", "hangs", "other");
                    CompletableFuture.anyOf(waiting, limited).get(20, TimeUnit.SECONDS);
                    Hold first = waiting.isDone() ? waiting.join() : limited.join().orElseThrow();
                    first.release();
                    waiting.thenAcceptBoth(limited, (one, other) -> {}).get(20, TimeUnit.SECONDS);
                } finally {
                    primary.thaw();
                }
            }
        }
    }

    @Test
    void a_planned_failover_without_sentinel_is_an_error_in_the_end() {
        try (TestServer primary = TestServer.start(); TestServer other = TestServer.start()) {
            try (DLockClient client = TestServer.patient().url(primary.url())
                    .patience(Duration.ofMillis(2000)).connect()) {
                primary.run("REPLICAOF", "127.0.0.1", other.port);
                UnavailableException error =
                        assertThrows(UnavailableException.class, client.lock("readonly")::lock);
                assertEquals("READONLY", ((ServerException) error.getCause()).code());
            }
        }
    }

    @Test
    void a_server_that_refuses_for_the_moment_is_one_that_cannot_be_reached() throws Exception {
        for (String refusal : List.of("LOADING too few servers agree: 0 of 3, a majority is 2: ", "MASTERDOWN of late",
                "CLUSTERDOWN of late", "ERR max number of clients reached")) {
            try (ServerSocket listener = new ServerSocket(0, 8, InetAddress.getLoopbackAddress())) {
                CompletableFuture<Void> refuses = CompletableFuture.runAsync(() -> refuse(listener, refusal));
                DLockClient.Builder builder = TestServer.patient().url("redis://127.0.0.1:" + listener.getLocalPort());
                UnavailableException error = assertThrows(UnavailableException.class, builder::connect);
                assertEquals(refusal, error.getMessage());
                refuses.get(20, TimeUnit.SECONDS);
            }
        }
    }

    /** Refuses every command of the first connection. */
    private static void refuse(ServerSocket listener, String refusal) {
        try (Socket socket = listener.accept()) {
            byte[] commands = new byte[4096];
            for (int count; (count = socket.getInputStream().read(commands)) > 0; ) {
                for (int at = 0; at < count; at++) {
                    if (commands[at] == '*') {
                        socket.getOutputStream().write(("-" + refusal + "\r\n").getBytes(StandardCharsets.UTF_8));
                    }
                }
            }
        } catch (IOException e) {
            // The client has closed the connection.
        }
    }

    @Test
    void in_a_cluster_a_lock_is_where_its_key_is() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            for (String name : List.of("a", "b", "c", "{x}1", "{x}2")) {
                DLock lock = client.lock(name);
                Hold hold = lock.acquire();
                assertEquals(hold.fencingToken(), cluster.with(name).info(name).get("token"));
                CompletableFuture<Hold> waiting = lock.acquireAsync();
                cluster.with(name).untilWaiting(name, 1);
                hold.release();
                waiting.get(20, TimeUnit.SECONDS).release();
                try (Hold session = lock.withLease(Lease.session(Duration.ofSeconds(3))).acquire()) {
                    assertTrue(session.check());
                }
            }
            assertThrows(IllegalArgumentException.class, () -> client.lock("a", "b"));
            client.lock("{x}1", "{x}2");
        }
    }

    @Test
    void a_slot_that_moved_is_followed() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            for (String name : List.of("a", "b", "c")) {
                DLock lock = client.lock(name);
                lock.acquire().release();
                cluster.move(name);
                Hold hold = lock.acquire();
                assertEquals(hold.fencingToken(), cluster.with(name).info(name).get("token"));
                hold.release();
            }
        }
    }

    /** A redirection has no host, or {@code ?} for a host name that is not set. Both mean the node that has answered. */
    @Test
    void a_redirection_without_a_host_leads_to_the_host_that_answered() throws Exception {
        for (String type : List.of("hostname", "unknown-endpoint")) {
            try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
                for (TestServer node : List.of(cluster.with("a"), cluster.without("a"))) {
                    node.run("CONFIG", "SET", "cluster-preferred-endpoint-type", type);
                }
                client.lock("a").acquire().release();
                TestServer here = cluster.with("a");
                TestServer there = cluster.without("a");
                int slot = Servers.slot("a");
                there.run("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(here));
                here.run("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(there));
                client.lock("a").acquire().release();
                there.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
                here.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
                Hold hold = client.lock("a").acquire();
                assertEquals(hold.fencingToken(), there.info("a").get("token"));
                hold.release();
            }
        }
    }

    @Test
    void a_waiter_goes_where_its_slot_goes() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            DLock lock = client.lock("a");
            Hold hold = lock.acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            TestServer here = cluster.with("a");
            here.untilWaiting("a", 1);
            TestServer there = cluster.migrate("a");
            there.untilWaiting("a", 1);
            assertTrue(hold.check());
            hold.release();
            waiting.get(20, TimeUnit.SECONDS).release();
            assertTrue(there.isFree("a"));
        }
    }

    @Test
    void a_lock_of_a_migrating_slot_is_acquired_from_the_importing_node() throws Exception {
        try (TestCluster cluster = new TestCluster(); DLockClient client = cluster.client()) {
            TestServer here = cluster.with("a");
            TestServer there = cluster.without("a");
            long slot = Servers.slot("a");
            there.run("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(here));
            here.run("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(there));
            DLock lock = client.lock("a");
            lock.lock();
            lock.unlock();
            try (Hold session = lock.withLease(Lease.session(Duration.ofSeconds(3))).acquire()) {
                there.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
                here.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
                assertEquals(session.fencingToken(), there.info("a").get("token"));
            }
        }
    }
}
