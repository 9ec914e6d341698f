package dlock;

import static dlock.TestServer.sleep;
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
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The cap of a thread's hold also ends what the thread is granted on the other side, however long the lease is. */
final class CappedUpgradesTest {
    /** In ms: the cap of the first hold, when the second one is asked for, and the longest lease. */
    private static final long CAP = 9000;
    private static final long AT = 6800;
    private static final long LEASE = 8400;

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

    private static Duration ms(long millis) {
        return Duration.ofMillis(millis);
    }

    private Map<String, Lease> leases() {
        Map<String, Lease> leases = new LinkedHashMap<>();
        leases.put("renewed", Lease.renewed(ms(LEASE)));
        leases.put("fixed", Lease.fixed(ms(CAP)));
        leases.put("connection", Lease.session(ms(LEASE)));
        leases.put("named", Lease.of(client.openSession(ms(LEASE / 3))));
        return leases;
    }

    /** Each changes the side of a lock, or enters another lock of the name. */
    private Map<String, Function<String, DLock[]>> ways(Lease lease) {
        Map<String, Function<String, DLock[]>> ways = new LinkedHashMap<>();
        Function<String, DReadWriteLock> both = name -> client.readWriteLock(name).withLease(lease);
        ways.put("upgrade", name -> new DLock[] {both.apply(name).readLock(), both.apply(name).writeLock()});
        ways.put("downgrade", name -> new DLock[] {both.apply(name).writeLock(), both.apply(name).readLock()});
        ways.put("exclusive", name -> new DLock[] {both.apply(name).readLock(), client.lock(name).withLease(lease)});
        return ways;
    }

    /** Fails if the client says at any time that it has a hold for longer than the server does. */
    private void claimsNoMoreThanTheServer(String what, Hold hold, String name) {
        long asked = System.nanoTime();
        long claimed = hold.remaining().toMillis();
        Object left = server.run("DLOCK.CHECK", name, hold.fencingToken());
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - asked) + 1;
        assertTrue(claimed <= (left == null ? 0 : (long) left) + took, what + ": " + claimed + " of " + left);
        for (boolean isOver = false; !isOver; ) {
            isOver = server.run("DLOCK.CHECK", name, hold.fencingToken()) == null;
            assertTrue(!isOver || !hold.isHeld(), what + ": held after the server's end");
        }
    }

    /** Plays each way with each lease. {@code limit}: what limits the time of the first hold. */
    private void play(String limit, Function<DLock, DLock> limited) throws Exception {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        leases().forEach((kind, lease) -> ways(lease).forEach((way, locks) -> {
            String what = limit + " " + kind + " " + way;
            all.add(CompletableFuture.runAsync(() -> {
                DLock[] both = locks.apply(what);
                DLock first = limited.apply(both[0]);
                long began = System.nanoTime();
                first.lock();
                sleep(AT);
                both[1].lock();
                Object mode = server.info(what).get("mode");
                if (System.nanoTime() - began > TimeUnit.MILLISECONDS.toNanos(CAP)) {
                    // The machine is busy: the first hold may have ended before.
                    return;
                }
                assertEquals("both", mode, what);
                claimsNoMoreThanTheServer(what, both[1].hold(), what);
                assertThrows(LockLostException.class, both[1]::unlock, what);
            }, task -> new Thread(task).start()));
        }));
        List<String> wrong = new ArrayList<>();
        for (CompletableFuture<Void> each : all) {
            each.exceptionally(failed -> {
                wrong.add(Futures.cause(failed).getMessage());
                return null;
            }).get(60, TimeUnit.SECONDS);
        }
        assertEquals("", String.join("\n", wrong));
    }

    @Test
    void a_cap_of_the_client_ends_both_sides() throws Exception {
        play("maxhold", lock -> lock.withMaxHold(ms(CAP)));
    }

    @Test
    void a_cap_of_the_server_ends_both_sides() throws Exception {
        server.run("CONFIG", "SET", "dlock.max-hold", CAP);
        play("server", lock -> lock);
    }

    /** The server still has the hold of the release that failed, with its cap, and the thread enters it again. */
    @Test
    void the_cap_of_a_hold_whose_release_was_refused_ends_the_next_one() throws Exception {
        DLock other = client.lock("other");
        other.lock();
        DLock first = client.lock("job").withLease(Lease.fixed(ms(CAP))).withMaxHold(ms(CAP));
        DLock byHand = client.lock("by hand").withLease(Lease.fixed(ms(CAP))).withMaxHold(ms(CAP));
        first.lock();
        byHand.lock();
        sleep(AT);
        server.run("CONFIG", "SET", "min-replicas-to-write", 1);
        assertThrows(ServerException.class, first::unlock);
        assertThrows(ServerException.class, byHand.hold()::release);
        byHand.unlock();
        server.run("CONFIG", "SET", "min-replicas-to-write", 0);
        first.lock();
        byHand.lock();
        claimsNoMoreThanTheServer("refused", first.hold(), "job");
        claimsNoMoreThanTheServer("refused by hand", byHand.hold(), "by hand");
        other.unlock();
    }

    @Test
    void an_upgrade_that_is_not_confirmed_is_not_held() throws Exception {
        try (Proxy proxy = new Proxy(server);
                DLockClient away = DLockClient.builder().url(proxy.url()).timeout(ms(300)).tries(ms(2000)).connect()) {
            DReadWriteLock lock = away.readWriteLock("job");
            lock.readLock().lock();
            proxy.slow = new String[] {"DLOCK.RENEW"};
            proxy.slowTakes = 60_000;
            CompletableFuture<Void> silent = CompletableFuture.runAsync(() -> {
                soon("the upgrade is granted", () -> "both".equals(server.info("job").get("mode")));
                proxy.silence();
            });
            assertThrows(UnavailableException.class, () -> lock.writeLock().tryLock(2, TimeUnit.SECONDS));
            silent.get(20, TimeUnit.SECONDS);
            assertFalse(lock.writeLock().isHeldByCurrentThread());
        }
    }
}
