package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Grants and renewals that replicas must acknowledge. */
final class ReplicasTest {
    private static final Duration LONG = Duration.ofSeconds(20);
    private static final Duration SHORT = Duration.ofMillis(1500);

    private static TestServer server;
    private static TestServer replica;
    private static DLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start("--repl-diskless-sync-delay", "0");
        replica = TestServer.start();
        replica.run("REPLICAOF", "127.0.0.1", server.port);
        soon("the replica is in step", () -> new String(
                (byte[]) replica.run("INFO", "replication"), StandardCharsets.UTF_8).contains("master_link_status:up"));
        client = server.client();
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
        replica.close();
    }

    @Test
    void a_granted_lock_is_on_the_replica() throws Exception {
        DLock lock = client.lock("on").withReplicas(1, LONG);
        lock.lock();
        assertEquals(lock.fencingToken(), replica.info("on").get("token"));
        CompletableFuture<Hold> waiting = lock.acquireAsync();
        server.untilWaiting("on", 1);
        lock.unlock();
        Hold hold = waiting.get(20, TimeUnit.SECONDS);
        assertEquals(hold.fencingToken(), replica.info("on").get("token"));
        hold.extend(Duration.ofMinutes(2));
        assertTrue((long) replica.info("on").get("ttl") > 60_000);
        hold.release();
    }

    @Test
    void a_grant_that_too_few_replicas_have_is_released() throws Exception {
        DLock lock = client.lock("few").withReplicas(2, SHORT);
        TooFewReplicasException failure = assertThrows(TooFewReplicasException.class, lock::lock);
        assertEquals("1 of 2 replicas acknowledged few within 1500 ms", failure.getMessage());
        assertEquals(1, failure.acknowledged());
        assertTrue(server.isFree("few"));
        assertFalse(lock.isHeldByCurrentThread());
        DLock session = lock.withLease(Lease.session(Duration.ofSeconds(10)));
        assertThrows(TooFewReplicasException.class, session::acquire);
        soon("the session's hold is released", () -> server.isFree("few"));
        DLock several = client.lock("few", "fewer").withReplicas(2, SHORT);
        assertThrows(TooFewReplicasException.class, several::acquire);
        assertTrue(server.isFree("few") && server.isFree("fewer"));
        DSemaphore semaphore = client.semaphore("few", 3).withReplicas(2, SHORT);
        assertThrows(TooFewReplicasException.class, () -> semaphore.acquire(2));
        assertTrue(server.isFree("few"));
        DReadWriteLock shared = client.readWriteLock("few").withReplicas(2, SHORT);
        assertThrows(TooFewReplicasException.class, shared.readLock()::lock);
        assertTrue(server.isFree("few"));
    }

    @Test
    void a_grant_whose_wait_for_replicas_is_refused_is_released() throws Exception {
        server.run("ACL", "SETUSER", "jobs", "on", ">secret", "~*", "&*", "+@all", "-wait");
        try (DLockClient jobs = TestServer.patient().url(server.url()).credentials("jobs", "secret").connect()) {
            DLock lock = jobs.lock("refused").withReplicas(1, SHORT);
            assertEquals("NOPERM", assertThrows(ServerException.class, lock::lock).code());
            assertTrue(server.isFree("refused"));
            Hold before = client.lock("refused").acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("refused", 1);
            before.release();
            assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            assertTrue(server.isFree("refused"));
        }
    }

    @Test
    void a_grant_after_a_wait_that_too_few_replicas_have_is_released() throws Exception {
        Hold before = client.lock("late").acquire();
        CompletableFuture<Hold> waiting = client.lock("late").withReplicas(2, SHORT).acquireAsync();
        server.untilWaiting("late", 1);
        before.release();
        ExecutionException failure = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertTrue(failure.getCause() instanceof TooFewReplicasException, failure.toString());
        assertTrue(server.isFree("late"));
    }

    @Test
    void a_renewal_that_too_few_replicas_have_does_not_count() throws Exception {
        try (TestServer alone = TestServer.start("--repl-diskless-sync-delay", "0");
                TestServer other = TestServer.start();
                DLockClient its = alone.client()) {
            other.run("REPLICAOF", "127.0.0.1", alone.port);
            DLock lock = its.lock("renewed").withLease(Lease.renewed(Duration.ofMillis(4000))).withReplicas(1, SHORT);
            Hold[] hold = new Hold[1];
            soon("the replica acknowledges a grant", () -> {
                try {
                    hold[0] = lock.acquire();
                    return true;
                } catch (TooFewReplicasException e) {
                    return false;
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold[0].onLost(lost::complete);
            other.run("REPLICAOF", "NO", "ONE");
            assertThrows(TooFewReplicasException.class, () -> hold[0].extend(Duration.ofMinutes(1)));
            assertTrue(hold[0].remaining().toMillis() <= 4000);
            assertTrue(lost.get(20, TimeUnit.SECONDS).getMessage().contains("its lease ended"));
        }
    }

    @Test
    void arguments_are_checked() {
        DLock lock = client.lock("arguments");
        assertThrows(IllegalArgumentException.class, () -> lock.withReplicas(0, LONG));
        assertThrows(IllegalArgumentException.class, () -> lock.withReplicas(1, Duration.ZERO));
        try (DLockClient driven = TestServer.patient().driver(words -> null).connect()) {
            DLock its = driven.lock("arguments");
            assertThrows(IllegalArgumentException.class, () -> its.withReplicas(1, LONG));
        }
    }
}
