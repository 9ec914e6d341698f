package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Renewals and releases whose answers do not come: a hold promises what is known. */
final class LostAnswersTest {
    private static final Duration SHORT = Duration.ofSeconds(6);
    private static final Duration LONG = Duration.ofMinutes(1);
    private static final Lease FOR_LONG = Lease.fixed(LONG.multipliedBy(10));
    /** The patience of an impatient client: a server that is not frozen answers within it, even on a busy machine. */
    private static final Duration PATIENCE = Duration.ofMillis(3000);
    /** In ms. By then, the client sends no more releases for an owner whose late copies may be executed. */
    private static final long LATE_RELEASES = 1500;
    private static final List<Function<Duration, Lease>> KINDS =
            List.of(Lease::renewed, Lease::fixed, Lease::session);

    private static DLockClient impatient(TestServer server) {
        return impatient(server.url());
    }

    /** A busy machine may not connect in that time: the client tries again. */
    private static DLockClient impatient(String url) {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); ; ) {
            try {
                return TestServer.patient().url(url)
                        .timeout(PATIENCE.dividedBy(2)).patience(PATIENCE).connect();
            } catch (UnavailableException e) {
                assertTrue(System.nanoTime() < end, e.getMessage());
            }
        }
    }

    private static void atMost(Duration most, Hold hold) {
        assertTrue(hold.remaining().compareTo(most) <= 0, hold.remaining() + " are left");
    }

    /** Waits until the server answers a renewal. */
    private static void extended(Hold hold, Duration lease) {
        soon("the server answers", () -> {
            try {
                hold.extend(lease);
                return true;
            } catch (UnavailableException e) {
                return false;
            }
        });
    }

    @Test
    void an_extension_without_an_answer_promises_nothing() {
        for (Function<Duration, Lease> kind : KINDS) {
            for (Duration before : List.of(SHORT, LONG)) {
                try (TestServer server = TestServer.start(); DLockClient client = impatient(server)) {
                    Hold hold = client.lock("job").withLease(kind.apply(before)).acquire();
                    server.freeze();
                    assertThrows(UnavailableException.class, () -> hold.extend(before == SHORT ? LONG : SHORT));
                    atMost(SHORT, hold);
                    server.thaw();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
        }
    }

    @Test
    void an_extension_that_may_still_come_is_counted() throws Exception {
        for (Function<Duration, Lease> kind : KINDS) {
            try (TestServer server = TestServer.start(); DLockClient client = impatient(server)) {
                Hold hold = client.lock("job").withLease(kind.apply(Duration.ofSeconds(20))).acquire();
                server.freeze();
                assertThrows(UnavailableException.class, () -> hold.extend(Duration.ofSeconds(10)));
                server.thaw();
                extended(hold, LONG);
                atMost(Duration.ofSeconds(10), hold);
                hold.release();
                assertTrue(server.isFree("job"));
            }
        }
    }

    @Test
    void a_hold_whose_lease_becomes_shorter_is_renewed_in_time() throws Exception {
        for (boolean isAnswered : new boolean[] {true, false}) {
            try (TestServer server = TestServer.start(); DLockClient client = impatient(server)) {
                Hold hold = client.lock("job").withLease(Lease.renewed(LONG)).acquire();
                if (isAnswered) {
                    extended(hold, SHORT);
                } else {
                    server.freeze();
                    assertThrows(UnavailableException.class, () -> hold.extend(SHORT));
                    server.thaw();
                }
                Thread.sleep(SHORT.toMillis() + 1500);
                assertTrue(hold.isHeld());
                atMost(SHORT, hold);
                hold.release();
            }
        }
    }

    @Test
    void a_release_without_an_answer_ends_in_time_and_continues_in_the_background() throws Exception {
        for (Function<Duration, Lease> kind : KINDS) {
            try (TestServer server = TestServer.start(); DLockClient client = impatient(server)) {
                Hold hold = client.lock("job").withLease(kind.apply(LONG)).acquire();
                server.freeze();
                Stopwatch took = new Stopwatch();
                assertThrows(UnavailableException.class, hold::release);
                took.at(PATIENCE.toMillis());
                assertFalse(hold.isHeld());
                assertEquals(Duration.ZERO, hold.remaining());
                server.thaw();
                soon("it is free", () -> server.isFree("job"));
                client.lock("job").acquire().release();
            }
        }
    }

    @Test
    void a_lease_that_the_renewal_behind_a_grant_may_still_set_is_counted() throws Exception {
        try (TestServer server = TestServer.start("--repl-diskless-sync-delay", "0");
                TestServer replica = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient direct = server.client();
                DLockClient client = TestServer.connected(proxy.url())) {
            replica.run("REPLICAOF", "127.0.0.1", server.port);
            soon("the replica is in step", () -> new String((byte[]) replica.run("INFO", "replication"),
                    StandardCharsets.UTF_8).contains("master_link_status:up"));
            Hold before = direct.lock("job").acquire();
            CompletableFuture<Hold> waiting = client.lock("job").withLease(Lease.fixed(SHORT.multipliedBy(2)))
                    .withReplicas(1, Duration.ofSeconds(20)).acquireAsync();
            server.untilWaiting("job", 1);
            proxy.keepFrom("DLOCK.RENEW");
            before.release();
            soon("it is renewed", () -> proxy.keeps);
            proxy.dropKept();
            Hold hold = waiting.get(20, TimeUnit.SECONDS);
            hold.extend(LONG);
            atMost(SHORT.multipliedBy(2), hold);
            proxy.deliver();
            soon("it arrives", () -> (long) server.run("PTTL", "job") <= SHORT.multipliedBy(2).toMillis());
            atMost(SHORT.multipliedBy(2), hold);
            hold.release();
        }
    }

    @Test
    void a_request_with_a_session_that_outlasts_its_connection_releases_nothing() throws Exception {
        outlasted(DLock::acquireAsync);
        outlasted(lock -> CompletableFuture.supplyAsync(() -> locked(lock)));
        outlasted(lock -> lock.tryAcquireAsync(Duration.ZERO).thenApply(hold -> hold.orElseThrow()));
    }

    private static void outlasted(Function<DLock, CompletableFuture<Hold>> ask) throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.connected(proxy.url())) {
            proxy.keepFrom("SESSION");
            CompletableFuture<Hold> asked = ask.apply(client.lock("job").withLease(Lease.session(LONG)));
            soon("the request is kept back", () -> proxy.keeps);
            proxy.dropKept();
            Hold hold = asked.get(20, TimeUnit.SECONDS);
            long before = server.calls("racquire");
            proxy.deliver();
            soon("the request arrives", () -> server.calls("racquire") > before);
            Thread.sleep(500);
            assertTrue(hold.isHeld());
            assertEquals(List.of(hold.fencingToken()), server.each("job", "holds", "token"));
            hold.release();
            soon("nobody has it", () -> server.isFree("job"));
        }
    }

    private static Hold locked(DLock lock) {
        lock.lock();
        return lock.hold();
    }

    @Test
    void an_upgrade_with_a_session_whose_connection_breaks_fails() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.patient().url(proxy.url()).lease(Lease.session(LONG)).connect()) {
            DReadWriteLock lock = client.readWriteLock("job");
            lock.readLock().lock();
            proxy.keepFrom("SESSION");
            Thread breaks = new Thread(() -> {
                soon("the request is kept back", () -> proxy.keeps);
                proxy.dropKept();
            });
            breaks.start();
            assertThrows(UnavailableException.class, () -> lock.writeLock().lock());
            breaks.join();
            proxy.deliver();
            Thread.sleep(500);
            assertEquals("shared", server.info("job").get("mode"));
            lock.writeLock().lock();
            lock.writeLock().unlock();
            lock.readLock().unlock();
            soon("nobody has it", () -> server.isFree("job"));
        }
    }

    @Test
    void a_session_is_lost_if_a_command_that_binds_it_may_outlast_its_connection() throws Exception {
        try (TestServer server = TestServer.start("--dlock.session-grace", "20000");
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.connected(proxy.url())) {
            Hold hold = client.lock("job").withLease(Lease.session(LONG)).acquire();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold.onLost(lost::complete);
            proxy.keepFrom("SESSION");
            server.run("CLIENT", "KILL", "ID", server.each("job", "holds", "session").get(0));
            soon("the command that binds it is kept back", () -> proxy.keeps);
            proxy.dropKept();
            lost.get(5, TimeUnit.SECONDS);
            assertFalse(hold.isHeld());
            server.run("CONFIG", "SET", "dlock.session-grace", 0);
            proxy.deliver();
            soon("the end of its connection releases it", () -> server.isFree("job"));
        }
    }

    @Test
    void a_session_whose_connection_has_ended_promises_nothing_until_it_is_bound_again() throws Exception {
        try (TestServer server = TestServer.start("--dlock.session-grace", "20000");
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.connected(proxy.url())) {
            DLock lock = client.lock("job").withLease(Lease.session(LONG));
            lock.lock();
            Hold hold = lock.hold();
            CompletableFuture<LockLostException> lost = new CompletableFuture<>();
            hold.onLost(lost::complete);
            proxy.keepFrom("SESSION");
            server.run("CLIENT", "KILL", "ID", server.each("job", "holds", "session").get(0));
            soon("it is bound", () -> proxy.keeps);
            assertEquals(Duration.ZERO, hold.remaining());
            assertFalse(hold.isHeld() || lock.isHeldByCurrentThread());
            assertFalse(lost.isDone());
            proxy.deliver();
            soon("it is bound again", hold::isHeld);
            lock.unlock();
            assertTrue(server.isFree("job"));
        }
    }

    @Test
    void a_binding_whose_answer_does_not_come_is_counted() throws Exception {
        try (TestServer server = TestServer.start("--dlock.session-grace", "20000");
                Proxy proxy = new Proxy(server);
                DLockClient client = impatient(proxy.url())) {
            Hold hold = client.lock("job").withLease(Lease.session(SHORT.multipliedBy(2))).acquire();
            proxy.keepFrom("SESSION");
            server.run("CLIENT", "KILL", "ID", server.each("job", "holds", "session").get(0));
            soon("it is bound again", () -> proxy.keeps && hold.isHeld());
            extended(hold, LONG);
            atMost(SHORT.multipliedBy(2), hold);
            proxy.deliver();
            soon("it arrives", () -> (long) server.run("PTTL", "job") <= SHORT.multipliedBy(2).toMillis());
            atMost(SHORT.multipliedBy(2), hold);
            hold.release();
        }
    }

    @Test
    void a_release_of_a_lost_lock_says_so_even_if_its_reply_is_lost() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.connected(proxy.url())) {
            for (boolean isTold : new boolean[] {false, true}) {
                Hold hold = client.lock("job").withLease(isTold ? FOR_LONG : Lease.fixed(Duration.ofMillis(300))).acquire();
                if (isTold) {
                    server.run("DEL", "job");
                    assertThrows(LockLostException.class, () -> hold.extend(LONG));
                }
                soon("it is lost", () -> !hold.isHeld() && server.isFree("job"));
                server.run("DLOCK.ACQUIRE", "job", "other");
                int before = proxy.lost.get();
                proxy.loseReplyTo("DLOCK.RELEASE");
                assertThrows(LockLostException.class, hold::release);
                assertEquals(before + 1, proxy.lost.get());
                assertEquals(1L, server.run("DEL", "job"));
            }
        }
    }

    private interface Play {
        void with(TestServer server, Proxy proxy, DLockClient client) throws Exception;
    }

    private static void behindAProxy(Play play) throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = new Proxy(server);
                DLockClient client = TestServer.patient().url(proxy.url()).timeout(Duration.ofSeconds(2)).connect()) {
            play.with(server, proxy, client);
        }
    }

    private static int entries(TestServer server, String command) {
        String calls = new String((byte[]) server.run("INFO", "commandstats"), StandardCharsets.UTF_8)
                .replaceFirst("(?is).*cmdstat_dlock." + command + ":calls=(\\d+),.*", "$1");
        return Integer.parseInt(calls);
    }

    /** Enters twice, the second time with a copy that does not arrive, and leaves. Returns the owner. */
    private static String entersLate(Proxy proxy, DLock lock, String command) {
        lock.lock();
        String owner = lock.hold().owner();
        proxy.keepFrom(command);
        try {
            lock.lock();
            lock.unlock();
        } catch (UnavailableException e) {
            // No copy was answered in time.
        }
        assertTrue(proxy.keeps);
        lock.unlock();
        return owner;
    }

    @Test
    void a_copy_of_an_entry_that_comes_after_the_release_leaves_nothing() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DLock lock = client.lock("job").withLease(FOR_LONG);
            String before = entersLate(proxy, lock, "DLOCK.RACQUIRE");
            proxy.deliver();
            soon("it arrives", () -> entries(server, "racquire") == 3);
            soon("it is free", () -> server.isFree("job"));
            lock.lock();
            assertNotEquals(before, lock.hold().owner());
            lock.unlock();
        });
    }

    @Test
    void a_late_entry_of_readers_ends_after_the_write_lock_of_its_thread() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DReadWriteLock lock = client.readWriteLock("job");
            DLock write = lock.writeLock().withLease(FOR_LONG);
            DLock read = lock.readLock().withLease(FOR_LONG);
            write.lock();
            entersLate(proxy, read, "DLOCK.RLOCK");
            read.lock();
            Thread.sleep(LATE_RELEASES);
            assertEquals(2, server.each("job", "holds", "owner").size(), "a thread that reads and writes has lost one of them");
            read.unlock();
            proxy.deliver();
            soon("it arrives", () -> entries(server, "rlock") == 4);
            write.unlock();
            soon("it is free", () -> server.isFree("job"));
        });
    }

    /** The thread holds "other" already, so the lock of both names asks the server for "job" alone. */
    @Test
    void a_lock_of_two_names_outlasts_the_releases_of_a_late_entry() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DLock other = client.lock("other").withLease(FOR_LONG);
            other.lock();
            String before = entersLate(proxy, client.lock("job").withLease(FOR_LONG), "DLOCK.RACQUIRE");
            DLock both = client.lock("other", "job").withLease(FOR_LONG);
            both.lock();
            assertNotEquals(List.of(before), server.each("job", "holds", "owner"));
            Thread.sleep(LATE_RELEASES);
            assertFalse(server.isFree("job"));
            both.unlock();
            other.unlock();
            assertTrue(server.isFree("other"));
        });
    }

    private interface Change {
        void make();
    }

    /** Makes a change whose first copy arrives later: when the function that this returns is called. */
    private static Runnable late(TestServer server, Proxy proxy, String command, Change change) {
        proxy.keepFrom("DLOCK." + command.toUpperCase(Locale.ROOT));
        change.make();
        assertTrue(proxy.keeps);
        return () -> {
            int before = entries(server, command);
            proxy.deliver();
            soon("it arrives", () -> entries(server, command) > before);
        };
    }

    @Test
    void a_copy_of_an_acquisition_that_comes_after_the_release_leaves_nothing() throws Exception {
        Map<String, Function<DLockClient, CompletableFuture<Hold>>> ways = new LinkedHashMap<>();
        ways.put("racquire", client -> client.lock("job").withLease(FOR_LONG).acquireAsync());
        ways.put("rlock", client -> client.readWriteLock("job").readLock()
                .withLease(Lease.of(client.openSession(Duration.ofSeconds(20)))).acquireAsync());
        ways.put("macquire", client -> client.lock("job", "other").withLease(FOR_LONG).acquireAsync());
        ways.put("sacquire", client -> client.semaphore("job", 3).withLease(FOR_LONG).acquireAsync(2));
        for (Map.Entry<String, Function<DLockClient, CompletableFuture<Hold>>> way : ways.entrySet()) {
            behindAProxy((server, proxy, client) -> {
                Hold[] hold = new Hold[1];
                Runnable arrives = late(server, proxy, way.getKey(),
                        () -> hold[0] = way.getValue().apply(client).join());
                hold[0].release();
                arrives.run();
                soon(way.getKey() + ": it is free", () -> server.isFree("job") && server.isFree("other"));
            });
        }
    }

    @Test
    void a_copy_of_an_inner_release_that_comes_late_releases_no_other_entry() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DLock lock = client.lock("job").withLease(FOR_LONG);
            for (int i = 0; i < 4; i++) {
                lock.lock();
            }
            Runnable arrives = late(server, proxy, "release", lock::unlock);
            lock.unlock();
            arrives.run();
            lock.lock();
            lock.unlock();
            lock.unlock();
            assertTrue(lock.isHeldByCurrentThread() && lock.hold().check());
            lock.unlock();
            assertTrue(server.isFree("job"));
        });
    }

    /** The lock of both names keeps the hold of "job" when the thread leaves the other lock and enters it again. */
    @Test
    void a_late_inner_release_does_not_release_what_a_lock_of_two_names_keeps() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DLock lock = client.lock("job").withLease(FOR_LONG);
            DLock both = client.lock("other", "job").withLease(FOR_LONG);
            lock.lock();
            lock.lock();
            both.lock();
            Runnable arrives = late(server, proxy, "release", lock::unlock);
            lock.unlock();
            lock.lock();
            lock.lock();
            lock.unlock();
            arrives.run();
            assertTrue(lock.isHeldByCurrentThread() && both.isHeldByCurrentThread() && !server.isFree("job"));
            lock.unlock();
            both.unlock();
            assertTrue(server.isFree("job") && server.isFree("other"));
        });
    }

    @Test
    void a_copy_of_a_release_of_permits_that_comes_late_releases_no_other_permit() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DSemaphore permits = client.semaphore("pool", 10).withLease(FOR_LONG);
            permits.acquire(6);
            Runnable arrives = late(server, proxy, "release", permits::release);
            permits.release();
            arrives.run();
            assertTrue(server.count("pool") >= 4, server.count("pool") + " permits");
            permits.release(4);
            assertTrue(server.isFree("pool"));
        });
    }

    /** The server executes both, and the connection ends before the replies. */
    @Test
    void two_releases_of_permits_at_a_time_release_two() throws Exception {
        behindAProxy((server, proxy, client) -> {
            DSemaphore permits = client.semaphore("pool", 10).withLease(FOR_LONG);
            permits.acquire(6);
            server.freeze();
            proxy.loseReplyTo("DLOCK.RELEASE");
            List<Thread> releasing = List.of(new Thread(permits::release), new Thread(permits::release));
            releasing.forEach(Thread::start);
            Thread.sleep(300);
            server.thaw();
            for (Thread thread : releasing) {
                thread.join(20_000);
            }
            assertEquals(1, proxy.lost.get());
            assertTrue(server.count("pool") >= 4, server.count("pool") + " permits");
            permits.release(4);
            assertTrue(server.isFree("pool"));
        });
    }
}
