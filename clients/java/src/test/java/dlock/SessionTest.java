package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Locks that the server renews as long as a connection is open. */
final class SessionTest {
    private static final Lease SESSION = Lease.session(Duration.ofSeconds(3));

    private TestServer server;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start();
        client = TestServer.patient().url(server.url()).lease(SESSION).connect();
    }

    @AfterEach
    void stop() {
        client.close();
        server.close();
    }

    @Test
    void the_server_renews_a_session() throws Exception {
        DLock lock = client.lock("renewed").withLease(Lease.session(Duration.ofSeconds(6)));
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        lock.onLost(lost::complete);
        lock.lock();
        assertNotEquals(null, server.each("renewed", "holds", "session").get(0));
        Thread.sleep(6500);
        assertTrue(lock.isHeldByCurrentThread());
        assertFalse(lost.isDone());
        lock.unlock();
        assertTrue(server.isFree("renewed"));
    }

    @Test
    void entering_again_leaves_the_binding() {
        DLock lock = client.lock("again");
        lock.lock();
        List<Object> session = server.each("again", "holds", "session");
        lock.lock();
        assertEquals(session, server.each("again", "holds", "session"));
        lock.unlock();
        assertEquals(session, server.each("again", "holds", "session"));
        lock.unlock();
        assertTrue(server.isFree("again"));
    }

    @Test
    void a_waiter_is_bound_when_it_is_granted() throws Exception {
        DLock lock = client.lock("waits");
        Hold first = lock.acquire();
        CompletableFuture<Hold> second = lock.acquireAsync();
        server.untilWaiting("waits", 1);
        List<Object> waiter = server.each("waits", "queue", "client");
        first.release();
        Hold hold = second.get(20, TimeUnit.SECONDS);
        assertEquals(waiter, server.each("waits", "holds", "session"));
        hold.release();
    }

    @Test
    void connections_are_used_again() throws Exception {
        DLock lock = client.lock("reuse");
        lock.acquire().release();
        long before = server.figure("stats", "total_connections_received");
        for (int i = 0; i < 20; i++) {
            lock.acquire().release();
        }
        assertEquals(before, server.figure("stats", "total_connections_received"));
    }

    @Test
    void a_broken_connection_is_a_lost_lock() throws Exception {
        DLock lock = client.lock("broken");
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        lock.onLost(lost::complete);
        lock.lock();
        Stopwatch took = new Stopwatch();
        server.run("CLIENT", "KILL", "ID", server.each("broken", "holds", "session").get(0));
        lost.get(20, TimeUnit.SECONDS);
        // The owner hears of the loss at once, and not only at the end of the lease.
        took.within(500);
        assertTrue(elsewhere(() -> {
            boolean locked = lock.tryLock();
            lock.unlock();
            return locked;
        }));
        assertThrows(LockLostException.class, lock::unlock);
    }

    @Test
    void a_binding_that_arrives_late_does_not_release_the_lock() throws Exception {
        server.run("CONFIG", "SET", "dlock.session-grace", 20_000);
        try (Proxy proxy = new Proxy(server);
                DLockClient other = TestServer.patient().url(proxy.url()).timeout(Duration.ofMillis(2000)).connect()) {
            Hold hold = other.lock("late").withLease(Lease.session(Duration.ofSeconds(30))).acquire();
            Object first = session("late");
            proxy.keepFrom("SESSION");
            server.run("CLIENT", "KILL", "ID", first);
            soon("the proxy keeps back a command that binds", () -> proxy.keeps);
            soon("another command has bound the hold", () -> session("late") != null && !first.equals(session("late")));
            soon("the client knows that the hold is bound", hold::isHeld); // the server knows before its answer arrives
            Object second = session("late");
            // Without a grace, the end of the connection that has the binding releases the lock. The late command binds
            // the hold to its connection, which the client has given up.
            server.run("CONFIG", "SET", "dlock.session-grace", 0);
            proxy.deliver();
            soon("the late command has arrived", () -> !second.equals(session("late")));
            Thread.sleep(300);
            assertTrue(hold.check() && hold.isHeld());
            hold.release();
            assertTrue(server.isFree("late"));
        }
    }

    /** Returns the id of the connection that a lock is bound to: null if it is bound to none, 0 if it is free. */
    private Object session(String name) {
        List<Object> sessions = server.each(name, "holds", "session");
        return sessions.isEmpty() ? Long.valueOf(0) : sessions.get(0);
    }

    @Test
    void with_a_grace_a_broken_connection_is_replaced() throws Exception {
        server.run("CONFIG", "SET", "dlock.session-grace", 20_000);
        Hold hold = client.lock("grace").withLease(Lease.session(Duration.ofSeconds(20))).acquire();
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        Object before = server.each("grace", "holds", "session").get(0);
        server.run("CLIENT", "KILL", "ID", before);
        soon("the hold is bound again", () -> {
            List<Object> now = server.each("grace", "holds", "session");
            return now.size() == 1 && now.get(0) != null && !now.get(0).equals(before);
        });
        assertTrue(hold.check());
        assertFalse(lost.isDone());
        hold.release();
        assertTrue(server.isFree("grace"));
    }

    @Test
    void a_session_is_bound_again_after_a_restart_of_the_server() throws Exception {
        try (TestServer saved = TestServer.start("--appendonly", "yes", "--appendfsync", "always");
                DLockClient other = TestServer.connected(saved.url())) {
            Hold hold = other.lock("saved").withLease(Lease.session(Duration.ofSeconds(20))).acquire();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold.onLost(lost::complete);
            saved.kill();
            saved.launch();
            soon("the hold is bound again", () -> {
                List<Object> now = saved.each("saved", "holds", "session");
                return now.size() == 1 && now.get(0) != null;
            });
            assertTrue(hold.check());
            assertFalse(lost.isDone());
            // After the next restart, the server has no hold. The owner is told of the loss.
            saved.run("FLUSHALL");
            saved.kill();
            saved.launch();
            lost.get(20, TimeUnit.SECONDS);
            assertThrows(LockLostException.class, hold::release);
        }
    }

    @Test
    void an_interrupted_wait_leaves_nothing_behind_despite_a_grace() throws Exception {
        server.run("CONFIG", "SET", "dlock.session-grace", 60_000);
        DLock lock = client.lock("gracerace");
        for (int round = 0; round < 50; round++) {
            Hold hold = lock.acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("gracerace", 1);
            CompletableFuture<Boolean> released = hold.releaseAsync();
            if (!waiting.cancel(true)) {
                waiting.join().release();
            }
            released.join();
            soon("nothing is left of round " + round, () -> server.isFree("gracerace"));
        }
    }

    @Test
    void a_server_that_says_nothing_for_a_lease_has_lost_the_lock() throws Exception {
        try (DLockClient quick = TestServer.patient()
                .url(server.url()).timeout(Duration.ofMillis(300)).lease(SESSION).connect()) {
            Hold hold = quick.lock("silent").withLease(SESSION).acquire();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold.onLost(lost::complete);
            Stopwatch took = new Stopwatch();
            server.freeze();
            try {
                lost.get(20, TimeUnit.SECONDS);
            } finally {
                server.thaw();
            }
            took.within(3000);
            assertFalse(hold.isHeld());
        }
    }

    @Test
    void closing_the_client_frees_its_sessions() throws Exception {
        client.lock("close").lock();
        client.close();
        soon("the lock is free", () -> server.isFree("close"));
    }
}
