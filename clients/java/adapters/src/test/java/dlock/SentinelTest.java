package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.jedis.JedisDriver;
import dlock.lettuce.LettuceDriver;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.UnifiedJedis;

/** Locks over connections of Jedis and of Lettuce, on servers that Sentinel watches. The primary fails over. */
final class SentinelTest {
    /**
     * The longest time from the end of a primary to a grant by the next one, on a busy machine. On a quiet one, Sentinel
     * alone needs 1 to 3 seconds.
     */
    private static final Duration FAILOVER = Duration.ofSeconds(60);

    private TestServer primary;
    private TestServer replica;
    private TestServer sentinel;
    private final List<AutoCloseable> opened = new ArrayList<>();

    @BeforeEach
    void start() {
        primary = TestServer.start("--repl-diskless-sync-delay", "0");
        replica = TestServer.start("--replicaof", "127.0.0.1 " + primary.port);
        sentinel = TestServer.sentinel("main", primary.port);
    }

    @AfterEach
    void stop() throws Exception {
        // Closing the clients would wait for a frozen server.
        primary.thaw();
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
        sentinel.close();
        replica.close();
        primary.close();
    }

    private DLockClient over(String kind) {
        Driver driver;
        if (kind.equals("jedis")) {
            ConnectionPoolConfig pool = new ConnectionPoolConfig();
            // Each command that waits takes a connection.
            pool.setMaxTotal(60);
            UnifiedJedis jedis = OtherJedis.sentinel("main", sentinel.port, pool);
            opened.add(jedis);
            driver = new JedisDriver(jedis);
        } else {
            RedisClient lettuce = RedisClient.create(RedisURI.Builder.sentinel("127.0.0.1", sentinel.port, "main").build());
            opened.add(lettuce::shutdown);
            LettuceDriver overLettuce = LettuceDriver.over(lettuce);
            opened.add(overLettuce);
            driver = overLettuce;
        }
        DLockClient client = TestServer.patient().driver(driver).connect();
        opened.add(client);
        return client;
    }

    /** Makes Jedis or Lettuce open many connections, which it keeps. All of them lead to the present primary. */
    private void busy(DLockClient client) throws Exception {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        Hold first = client.lock("busy").acquire();
        for (int i = 0; i < 10; i++) {
            all.add(client.lock("busy").acquireAsync().thenAccept(Hold::release));
        }
        primary.untilWaiting("busy", 10);
        first.release();
        for (CompletableFuture<Void> each : all) {
            each.get(20, TimeUnit.SECONDS);
        }
    }

    /** Checks that a hold and a wait go on at the new primary, and that it grants another lock soon. */
    private void goesOn(String kind, Runnable failover) throws Exception {
        DLockClient client = over(kind);
        busy(client);
        Hold hold = client.lock("failover").acquire();
        CompletableFuture<Hold> waiting = client.lock("failover").acquireAsync();
        primary.untilWaiting("failover", 1);
        soon("the replica has the lock", () -> !replica.isFree("failover"));
        long begun = System.nanoTime();
        failover.run();
        Hold other = client.lock("other").tryAcquire(FAILOVER).orElseThrow();
        System.out.println(kind + ": granted " + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun) + " ms later");
        replica.untilWaiting("failover", 1);
        assertEquals(other.fencingToken(), replica.info("other").get("token"));
        assertTrue(hold.check());
        assertFalse(waiting.isDone());
        hold.release();
        Hold next = waiting.get(20, TimeUnit.SECONDS);
        assertTrue(next.fencingToken() > hold.fencingToken());
        assertEquals(next.fencingToken(), replica.info("failover").get("token"));
        next.release();
        other.release();
        soon("nothing is left", () -> replica.isFree("failover") && replica.isFree("other"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_primary_that_dies_is_followed_by_the_next(String kind) throws Exception {
        goesOn(kind, primary::kill);
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_primary_that_hangs_is_followed_by_the_next(String kind) throws Exception {
        goesOn(kind, primary::freeze);
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_planned_failover_is_followed(String kind) throws Exception {
        goesOn(kind, () -> {
            sentinel.run("SENTINEL", "FAILOVER", "main");
            // The former primary grants locks until Sentinel demotes it, some 10 s later.
            soon("Sentinel demotes the former primary", () -> replica.figure("replication", "connected_slaves") == 1);
        });
    }

    /** A renewed lease of 30 s outlasts the failover. One of 900 ms does not, and its loss is reported in time. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_long_lease_outlasts_the_failover_and_the_loss_of_a_short_one_is_told_in_time(String kind) throws Exception {
        DLockClient client = over(kind);
        Hold kept = client.lock("kept").withLease(Lease.renewed(Duration.ofSeconds(30))).acquire();
        CompletableFuture<Long> told = new CompletableFuture<>();
        Hold brief = client.lock("brief").withLease(Lease.renewed(Duration.ofMillis(900))).acquire()
                .onLost(loss -> told.complete(System.nanoTime()));
        soon("the replica has both locks", () ->
                !replica.isFree("kept") && (!replica.isFree("brief") || told.isDone()));
        long died = System.nanoTime();
        primary.kill();
        long after = told.get(20, TimeUnit.SECONDS) - died;
        // The lease, and two seconds for a busy machine.
        assertTrue(after < TimeUnit.MILLISECONDS.toNanos(900 + 2000), after + " ns");
        assertFalse(brief.isHeld());
        client.lock("other").tryAcquire(FAILOVER).orElseThrow().release();
        assertTrue(kept.check());
        kept.release();
    }
}
