package dlock;

import static dlock.TestServer.elsewhere;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.jedis.JedisDriver;
import dlock.lettuce.LettuceDriver;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.UnifiedJedis;

/** Locks over Jedis and Lettuce themselves, in database 6 of a server, and in a cluster. */
final class DriversTest {
    private static TestServer server;
    private static TestCluster cluster;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        server.run("SELECT", 6);
        cluster = new TestCluster();
    }

    @AfterAll
    static void stop() {
        server.close();
        cluster.close();
    }

    /** A client of dlock over one of Jedis or Lettuce, which is closed with it. */
    private static final class Over implements AutoCloseable {
        final DLockClient client;
        private final List<AutoCloseable> others;

        Over(Driver driver, AutoCloseable... others) {
            this.client = TestServer.patient().driver(driver).connect();
            this.others = List.of(others);
        }

        @Override
        public void close() throws Exception {
            client.close();
            for (AutoCloseable other : others) {
                other.close();
            }
        }
    }

    private static Over over(String kind) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(40);
        switch (kind) {
            case "jedis":
                UnifiedJedis jedis = OtherJedis.server(server.port, 6, pool);
                return new Over(new JedisDriver(jedis), jedis);
            case "lettuce":
                io.lettuce.core.RedisClient lettuce =
                        io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + server.port + "/6");
                LettuceDriver driver = LettuceDriver.over(lettuce);
                return new Over(driver, driver, lettuce::shutdown);
            case "jedis cluster":
                UnifiedJedis nodes = OtherJedis.cluster(cluster.first.port, pool);
                return new Over(new JedisDriver(nodes), nodes);
            default:
                RedisClusterClient all = RedisClusterClient.create("redis://127.0.0.1:" + cluster.first.port);
                LettuceDriver routed = LettuceDriver.over(all);
                return new Over(routed, routed, all::shutdown);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_lock_excludes_and_is_entered_again(String kind) throws Exception {
        try (Over over = over(kind)) {
            DLock lock = over.client.lock(kind + ":excludes");
            lock.lock();
            lock.lock();
            assertEquals(2, server.count(kind + ":excludes"));
            assertFalse(elsewhere(() -> lock.tryLock()));
            assertTrue(lock.isLocked());
            assertEquals(lock.hold().owner(), over.client.holder(kind + ":excludes").orElseThrow().owner());
            lock.unlock();
            lock.unlock();
            assertTrue(server.isFree(kind + ":excludes"));
            DSemaphore pool = over.client.semaphore(kind + ":pool", 2).withSlots();
            pool.acquire();
            assertEquals(0, pool.slot());
            pool.release();
            DLock both = over.client.lock(kind + ":a", kind + ":b");
            assertTrue(both.tryLock());
            both.unlock();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void waits_are_served_in_order_and_end(String kind) throws Exception {
        try (Over over = over(kind)) {
            String name = kind + ":order";
            DLock lock = over.client.lock(name);
            server.servesInOrder(lock, 2500); // longer than two calls that wait, of 1 s each
            Hold other = lock.acquire();
            TestServer.refused(() -> lock.tryAcquire(Duration.ofMillis(1500)));
            server.untilWaiting(name, 0);
            CompletableFuture<Hold> canceled = lock.acquireAsync();
            server.untilWaiting(name, 1);
            canceled.cancel(true);
            server.untilWaiting(name, 0);
            other.release();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void errors_of_the_server_have_their_codes_and_classes(String kind) throws Exception {
        try (Over over = over(kind)) {
            server.run("SET", kind + ":text", "a");
            ServerException wrong =
                    assertThrows(ServerException.class, () -> over.client.lock(kind + ":text").tryLock());
            assertEquals("WRONGTYPE", wrong.code());
            DReadWriteLock lock = over.client.readWriteLock(kind + ":dead");
            lock.readLock().lock();
            CompletableFuture<Void> other = CompletableFuture.runAsync(() -> {
                lock.readLock().lock();
                lock.writeLock().lock();
                lock.writeLock().unlock();
                lock.readLock().unlock();
            }, task -> new Thread(task).start());
            server.untilWaiting(kind + ":dead", 1);
            assertThrows(DeadlockException.class, () -> lock.writeLock().lock());
            lock.readLock().unlock();
            other.get(20, TimeUnit.SECONDS);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_server_that_comes_back_is_found(String kind) throws Exception {
        try (TestServer other = TestServer.start("--appendonly", "yes")) {
            Over over;
            if (kind.equals("jedis")) {
                UnifiedJedis jedis = OtherJedis.server(other.port, 0, new ConnectionPoolConfig());
                over = new Over(new JedisDriver(jedis), jedis);
            } else {
                io.lettuce.core.RedisClient lettuce = io.lettuce.core.RedisClient.create(other.url());
                LettuceDriver driver = LettuceDriver.over(lettuce);
                over = new Over(driver, driver, lettuce::shutdown);
            }
            try (over) {
                Hold hold = over.client.lock("job").acquire();
                CompletableFuture<Optional<Hold>> waiting =
                        over.client.lock("job").tryAcquireAsync(Duration.ofSeconds(40));
                other.untilWaiting("job", 1);
                other.kill();
                other.launch();
                other.untilWaiting("job", 1);
                assertTrue(hold.check());
                hold.release();
                waiting.get(30, TimeUnit.SECONDS).orElseThrow().release();
                assertTrue(other.isFree("job"));
            }
        }
    }

    /** A copy that arrives after the client has given up would be granted to nobody. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void jedis_and_lettuce_send_a_command_once(String kind) throws Exception {
        try (Proxy proxy = new Proxy(server)) {
            Driver driver;
            List<AutoCloseable> others = new ArrayList<>();
            int port = Integer.parseInt(proxy.url().replaceAll(".*:", ""));
            if (kind.equals("jedis")) {
                UnifiedJedis jedis = OtherJedis.server(port, 6, new ConnectionPoolConfig());
                others.add(jedis);
                driver = new JedisDriver(jedis);
            } else {
                io.lettuce.core.RedisClient lettuce = io.lettuce.core.RedisClient.create(proxy.url() + "/6");
                others.add(lettuce::shutdown);
                driver = LettuceDriver.over(lettuce);
            }
            long before = calls();
            for (int i = 0; i < 50; i++) {
                byte[][] command = Words.command("DLOCK.ACQUIRE", kind + ":copies", "owner" + i, "BLOCK", 1);
                proxy.loseReplyTo("DLOCK.ACQUIRE");
                assertThrows(Exception.class, () -> driver.call(command));
            }
            for (AutoCloseable other : others) {
                other.close();
            }
            assertEquals(before + 50, calls());
        }
    }

    private static long calls() {
        Matcher calls = Pattern.compile("(?i)cmdstat_dlock.acquire:calls=(\\d+)")
                .matcher(Words.text(server.run("INFO", "commandstats")));
        return calls.find() ? Long.parseLong(calls.group(1)) : 0;
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis cluster", "lettuce cluster"})
    void a_cluster_finds_the_node_of_each_key(String kind) throws Exception {
        try (Over over = over(kind)) {
            for (int i = 0; i < 10; i++) {
                String name = kind + ":" + i;
                Hold hold = over.client.lock(name).acquire();
                assertFalse(cluster.with(name).isFree(name), name);
                CompletableFuture<Hold> waiting = over.client.lock(name).acquireAsync();
                cluster.with(name).untilWaiting(name, 1);
                hold.release();
                waiting.get(20, TimeUnit.SECONDS).release();
                DLock both = over.client.lock("{" + name + "}a", "{" + name + "}b");
                assertTrue(both.tryLock());
                both.unlock();
            }
        }
    }

    /** While a slot moves, a node answers ASK, and the driver asks another one: the nil that it gets then is an answer. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis cluster", "lettuce cluster"})
    void a_nil_of_the_node_that_gets_a_slot_is_an_answer(String kind) throws Exception {
        String key = "moves:" + kind;
        int slot = Servers.slot(key);
        TestServer here = cluster.with(key);
        TestServer there = cluster.without(key);
        try (Over over = over(kind)) {
            Hold hold = over.client.lock(key).withLease(Lease.fixed(Duration.ofMinutes(5))).acquire();
            here.run("DEL", key);
            there.run("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(here));
            here.run("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(there));
            there.run("ASKING");
            there.run("DLOCK.ACQUIRE", key, "another", "PX", 600_000);
            assertFalse(over.client.lock(key).tryAcquire(Duration.ZERO).isPresent());
            assertFalse(hold.releaseAsync().get(60, TimeUnit.SECONDS));
        } finally {
            there.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
            here.run("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(there));
        }
    }
}
