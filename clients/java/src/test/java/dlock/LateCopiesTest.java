package dlock;

import static dlock.TestServer.sleep;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Copies of requests and of releases that arrive late: they take no lock for nobody, and end no hold. */
final class LateCopiesTest {
    /** Longer than the test, so that what a late copy takes does not end by itself. */
    private static final Lease FOR_LONG = Lease.fixed(Duration.ofMinutes(10));
    /** In ms. By then, the client sends no more releases for an owner whose late copies may be executed. */
    private static final long LATE_RELEASES = 1500;
    /** In ms. By then, the client has released at once what it gave up, and releases again later. */
    private static final long GIVEN_UP = 300;

    private TestServer server;
    private Proxy proxy;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start();
        proxy = new Proxy(server);
        client = TestServer.patient().url(proxy.url()).timeout(Duration.ofSeconds(1))
                .patience(Duration.ofMillis(1500)).connect();
    }

    @AfterEach
    void stop() {
        client.close();
        proxy.close();
        server.close();
    }

    /** Lets what is kept back arrive, which is a command of this kind. */
    private void arrives(String command) {
        long before = server.calls(command);
        proxy.deliver();
        soon("it arrives", () -> server.calls(command) > before);
    }

    /** Has the client lose its connection as soon as the proxy keeps a command back. */
    private CompletableFuture<Void> drops(String command) {
        proxy.keepFrom(command);
        return CompletableFuture.runAsync(() -> {
            soon("it is kept back", () -> proxy.keeps);
            proxy.dropKept();
        });
    }

    /** The client reaches no server until the returned task runs. */
    private Runnable nowhere() {
        TestServer gone = TestServer.start();
        gone.close();
        proxy.lead(gone);
        proxy.cut();
        return () -> proxy.lead(server);
    }

    @Test
    void a_copy_of_a_refused_request_leaves_nothing() throws Exception {
        Map<String, Function<DLockClient, Supplier<Boolean>>> ways = new LinkedHashMap<>();
        ways.put("racquire", its -> its.lock("job").withLease(FOR_LONG)::tryLock);
        ways.put("wlock", its -> () -> its.readWriteLock("job").writeLock().withLease(FOR_LONG)
                .tryAcquireAsync(Duration.ZERO).join().isPresent());
        ways.put("sacquire", its -> its.semaphore("job", 3).withLease(FOR_LONG)::tryAcquire);
        ways.put("rlock", its -> its.readWriteLock("job").readLock()
                .withLease(Lease.of(its.openSession(Duration.ofSeconds(20))))::tryLock);
        for (Map.Entry<String, Function<DLockClient, Supplier<Boolean>>> way : ways.entrySet()) {
            server.run("DLOCK.ACQUIRE", "job", "other");
            Supplier<Boolean> ask = way.getValue().apply(client);
            CompletableFuture<Void> dropped = drops("DLOCK." + way.getKey().toUpperCase(Locale.ROOT));
            assertFalse(ask.get());
            dropped.get(20, TimeUnit.SECONDS);
            server.run("DLOCK.RELEASE", "job", "other");
            Thread.sleep(GIVEN_UP);
            arrives(way.getKey());
            soon(way.getKey() + ": nobody has it", () -> server.isFree("job"));
            stop();
            start();
        }
    }

    /** The last copy of the wait is kept back until the client has closed its connection. */
    @Test
    void a_copy_of_a_wait_that_was_given_up_leaves_nothing() throws Exception {
        Map<String, Function<DLockClient, DLock>> ways = new LinkedHashMap<>();
        ways.put("racquire", its -> its.lock("job"));
        ways.put("wlock", its -> its.readWriteLock("job").writeLock());
        ways.put("rlock", its -> its.readWriteLock("job").readLock());
        for (Map.Entry<String, Function<DLockClient, DLock>> way : ways.entrySet()) {
            for (String how : List.of("limit", "interrupt", "session")) {
                String command = way.getKey();
                server.run("DLOCK.ACQUIRE", "job", "other");
                Lease lease = how.equals("session") ? Lease.of(client.openSession(Duration.ofMinutes(1))) : FOR_LONG;
                DLock lock = way.getValue().apply(client).withLease(lease);
                proxy.keepFrom("BLOCK");
                CompletableFuture<Boolean> asked = new CompletableFuture<>();
                Thread thread = new Thread(() -> {
                    try {
                        asked.complete(how.equals("interrupt") ? locked(lock) : lock.tryLock(1, TimeUnit.SECONDS));
                    } catch (InterruptedException e) {
                        asked.complete(false);
                    }
                });
                thread.start();
                soon("it is kept back", () -> proxy.keeps);
                long before = server.calls(command);
                if (how.equals("interrupt")) {
                    thread.interrupt();
                }
                assertFalse(asked.get(20, TimeUnit.SECONDS));
                soon("the client asks whether it was granted", () -> server.calls(command) > before);
                server.run("DLOCK.RELEASE", "job", "other");
                arrives(command);
                soon(command + " " + how + ": nobody has it", () -> server.isFree("job"));
                stop();
                start();
            }
        }
    }

    private static boolean locked(DLock lock) throws InterruptedException {
        lock.lockInterruptibly();
        return true;
    }

    /** The thread of a refused request has another owner next, so that the releases of its copies end nothing. */
    @Test
    void a_thread_whose_request_was_refused_with_a_copy_open_gets_another_owner() throws Exception {
        DLock held = client.lock("held").withLease(FOR_LONG);
        DLock lock = client.lock("job").withLease(FOR_LONG);
        held.lock();
        server.run("DLOCK.ACQUIRE", "job", "other");
        CompletableFuture<Void> dropped = drops("DLOCK.RACQUIRE");
        assertFalse(lock.tryLock());
        dropped.get(20, TimeUnit.SECONDS);
        server.run("DLOCK.RELEASE", "job", "other");
        lock.lock();
        assertNotEquals(held.hold().owner(), lock.hold().owner());
        Thread.sleep(LATE_RELEASES);
        assertTrue(lock.hold().check());
        lock.unlock();
        held.unlock();
    }

    /** A thread that reads has written, and a copy of an entry of its write lock comes late. */
    @Test
    void a_late_copy_of_an_upgrade_ends_while_its_thread_goes_on_reading() throws Exception {
        DReadWriteLock lock = client.readWriteLock("job").withLease(FOR_LONG);
        lock.readLock().lock();
        lock.writeLock().lock();
        CompletableFuture<Void> dropped = drops("DLOCK.WLOCK");
        lock.writeLock().lock();
        dropped.get(20, TimeUnit.SECONDS);
        lock.writeLock().unlock();
        lock.writeLock().unlock();
        arrives("wlock");
        soon("only the reader is left", () -> server.each("job", "holds", "mode").equals(List.of("shared")));
        assertTrue(lock.readLock().hold().check());
        lock.readLock().unlock();
    }

    /** Writes, and repeats the entry so that releases of a late copy follow. The thread goes on reading. */
    private DLock wroteLate(DReadWriteLock lock) {
        lock.readLock().lock();
        lock.writeLock().lock();
        proxy.loseReplyTo("DLOCK.WLOCK");
        lock.writeLock().lock();
        lock.writeLock().unlock();
        lock.writeLock().unlock();
        return lock.writeLock();
    }

    @Test
    void the_releases_of_a_late_copy_spare_the_next_upgrade() throws Exception {
        DLock write = wroteLate(client.readWriteLock("job").withLease(FOR_LONG));
        write.lock();
        Thread.sleep(LATE_RELEASES);
        assertTrue(write.isHeldByCurrentThread() && write.hold().check());
        write.unlock();
    }

    @Test
    void a_release_of_a_late_copy_that_arrives_late_spares_the_next_upgrade() throws Exception {
        DLock write = wroteLate(client.readWriteLock("job").withLease(FOR_LONG));
        proxy.keepFrom("DLOCK.RELEASE");
        soon("it is kept back", () -> proxy.keeps);
        proxy.dropKept();
        CompletableFuture<Void> arrived = CompletableFuture.runAsync(() -> {
            sleep(GIVEN_UP);
            proxy.deliver();
        });
        assertTrue(write.tryLock(10, TimeUnit.SECONDS));
        arrived.get(20, TimeUnit.SECONDS);
        Thread.sleep(GIVEN_UP);
        assertTrue(write.hold().check());
        write.unlock();
    }

    /** The server still has the hold of the release that failed, so the next upgrade enters it again. */
    @Test
    void a_release_that_failed_spares_the_next_upgrade() throws Exception {
        for (boolean isOfSession : new boolean[] {false, true}) {
            Lease lease = isOfSession ? Lease.of(client.openSession(Duration.ofSeconds(20))) : FOR_LONG;
            DReadWriteLock lock = client.readWriteLock("job:" + isOfSession).withLease(lease);
            lock.readLock().lock();
            lock.writeLock().lock();
            long before = lock.writeLock().hold().fencingToken();
            Runnable returns = nowhere();
            assertThrows(UnavailableException.class, lock.writeLock()::unlock);
            returns.run();
            lock.writeLock().lock();
            assertEquals(before, lock.writeLock().hold().fencingToken());
            Thread.sleep(3000);
            assertTrue(lock.writeLock().isHeldByCurrentThread() && lock.writeLock().hold().check());
            lock.writeLock().unlock();
            assertEquals(List.of("shared"), server.each("job:" + isOfSession, "holds", "mode"));
            long released = server.calls("release");
            Thread.sleep(LATE_RELEASES);
            assertEquals(released, server.calls("release"), "the release that failed is still repeated");
            lock.readLock().unlock();
        }
    }

    /** The server refuses the release, so the session owes it. */
    @Test
    void a_release_that_a_session_owes_spares_the_next_upgrade() throws Exception {
        Session session = client.openSession(Duration.ofSeconds(3));
        DReadWriteLock lock = client.readWriteLock("job").withLease(Lease.of(session));
        lock.readLock().lock();
        lock.writeLock().lock();
        server.run("CONFIG", "SET", "min-replicas-to-write", 1);
        assertThrows(ServerException.class, lock.writeLock()::unlock);
        server.run("CONFIG", "SET", "min-replicas-to-write", 0);
        lock.writeLock().lock();
        Thread.sleep(2500);
        assertTrue(lock.writeLock().isHeldByCurrentThread() && lock.writeLock().hold().check());
        lock.writeLock().unlock();
        assertEquals(List.of("shared"), server.each("job", "holds", "mode"));
        lock.readLock().unlock();
        assertTrue(session.isOpen());
    }

    /** Releases of the lost hold, and of its late copies, may still come. */
    @Test
    void the_other_side_of_a_lost_lock_has_another_owner() {
        DReadWriteLock lock = client.readWriteLock("job").withLease(FOR_LONG);
        lock.writeLock().lock();
        Hold lost = lock.writeLock().hold();
        server.run("DEL", "job");
        assertThrows(LockLostException.class, () -> lost.extend(Duration.ofMinutes(1)));
        lock.readLock().lock();
        assertNotEquals(lost.owner(), lock.readLock().hold().owner());
        assertThrows(LockLostException.class, lock.writeLock()::unlock);
        lock.readLock().unlock();
    }

    @Test
    void a_client_that_is_closed_releases_what_a_late_copy_takes() throws Exception {
        DLock lock = client.lock("job").withLease(FOR_LONG);
        CompletableFuture<Void> dropped = drops("DLOCK.RACQUIRE");
        lock.lock();
        dropped.get(20, TimeUnit.SECONDS);
        lock.unlock();
        CompletableFuture<Void> closed = CompletableFuture.runAsync(client::close);
        Thread.sleep(GIVEN_UP);
        arrives("racquire");
        closed.get(20, TimeUnit.SECONDS);
        assertTrue(server.isFree("job"));
    }

    @Test
    void a_late_copy_of_a_lock_that_stays_for_a_moment_leaves_nothing() throws Exception {
        DLock lock = client.lock("job").withLease(FOR_LONG).withAtLeast(Duration.ofSeconds(1));
        CompletableFuture<Void> dropped = drops("DLOCK.RACQUIRE");
        lock.lock();
        dropped.get(20, TimeUnit.SECONDS);
        lock.unlock();
        soon("its time is over", () -> server.isFree("job"));
        arrives("racquire");
        soon("nobody has it", () -> server.isFree("job"));
    }

    @Test
    void a_client_that_is_closed_waits_for_a_lock_that_stays_for_a_moment() throws Exception {
        for (boolean isHeld : new boolean[] {false, true}) {
            DLock lock = client.lock("job").withLease(FOR_LONG).withAtLeast(Duration.ofMillis(500));
            CompletableFuture<Void> dropped = drops("DLOCK.RACQUIRE");
            lock.lock();
            dropped.get(20, TimeUnit.SECONDS);
            if (!isHeld) {
                lock.unlock();
            }
            CompletableFuture<Void> closed = CompletableFuture.runAsync(client::close);
            soon("its time is over", () -> server.isFree("job"));
            arrives("racquire");
            closed.get(20, TimeUnit.SECONDS);
            assertTrue(server.isFree("job"), "held: " + isHeld);
            stop();
            start();
        }
    }

    @Test
    void a_client_that_is_closed_does_not_wait_for_a_lock_that_stays_for_long() throws Exception {
        DLock lock = client.lock("job").withLease(FOR_LONG).withAtLeast(Duration.ofMinutes(1));
        CompletableFuture<Void> dropped = drops("DLOCK.RACQUIRE");
        lock.lock();
        dropped.get(20, TimeUnit.SECONDS);
        lock.unlock();
        Stopwatch took = new Stopwatch();
        client.close();
        took.within(1000);
    }
}
