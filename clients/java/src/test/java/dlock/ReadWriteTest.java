package dlock;

import static dlock.TestServer.elsewhere;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Tests of locks of readers and writers: sharing, downgrades and upgrades. */
final class ReadWriteTest {
    private static TestServer server;
    private static DLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        client = server.client();
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    @Test
    void readers_share_and_a_writer_is_alone() throws Exception {
        DReadWriteLock lock = client.readWriteLock("share");
        lock.readLock().lock();
        Hold other = elsewhere(() -> TestServer.joined(lock.readLock().acquireAsync()));
        assertEquals(2L, server.info("share").get("holders"));
        assertFalse(elsewhere(() -> lock.writeLock().tryLock()));
        CompletableFuture<Hold> writer = lock.writeLock().acquireAsync();
        server.untilWaiting("share", 1);
        // A reader does not overtake the writer that waits.
        assertFalse(elsewhere(() -> lock.readLock().tryLock()));
        lock.readLock().unlock();
        other.release();
        Hold writing = writer.get(20, TimeUnit.SECONDS);
        assertEquals("exclusive", server.info("share").get("mode"));
        writing.release();
    }

    @Test
    void a_writer_may_keep_a_read_lock() {
        DReadWriteLock lock = client.readWriteLock("downgrade");
        lock.writeLock().lock();
        lock.readLock().lock();
        assertEquals("both", server.info("downgrade").get("mode"));
        assertNotEquals(lock.writeLock().fencingToken(), lock.readLock().fencingToken());
        lock.writeLock().unlock();
        assertEquals("shared", server.info("downgrade").get("mode"));
        assertTrue(elsewhere(() -> {
            boolean shared = lock.readLock().tryLock();
            lock.readLock().unlock();
            return shared;
        }));
        lock.readLock().unlock();
        assertTrue(server.isFree("downgrade"));
    }

    @Test
    void a_reader_gets_the_write_lock_when_the_other_readers_are_gone() throws Exception {
        DReadWriteLock lock = client.readWriteLock("upgrade");
        Hold other = lock.readLock().acquire();
        lock.readLock().lock();
        assertFalse(lock.writeLock().tryLock());
        CompletableFuture<Boolean> released = CompletableFuture.supplyAsync(() -> {
            server.untilWaiting("upgrade", 1);
            return other.releaseAsync().join();
        });
        assertTrue(lock.writeLock().tryLock(20, TimeUnit.SECONDS));
        assertTrue(released.get(20, TimeUnit.SECONDS));
        lock.writeLock().unlock();
        assertEquals("shared", server.info("upgrade").get("mode"));
        lock.readLock().unlock();
    }

    @Test
    void the_second_reader_that_wants_to_write_gets_a_deadlock_error() throws Exception {
        DReadWriteLock lock = client.readWriteLock("both");
        lock.readLock().lock();
        CompletableFuture<Boolean> other = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            lock.readLock().lock();
            lock.writeLock().lock();
            other.complete(lock.writeLock().isHeldByCurrentThread());
            lock.writeLock().unlock();
            lock.readLock().unlock();
        });
        thread.start();
        server.untilWaiting("both", 1);
        assertThrows(DeadlockException.class, lock.writeLock()::lock);
        lock.readLock().unlock();
        assertTrue(other.get(20, TimeUnit.SECONDS));
        thread.join();
        assertTrue(server.isFree("both"));
    }

    @Test
    void an_interrupted_upgrade_keeps_the_read_lock() throws Exception {
        DReadWriteLock lock = client.readWriteLock("giveup");
        Hold other = lock.readLock().acquire();
        CompletableFuture<String> mode = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            lock.readLock().lock();
            try {
                lock.writeLock().lockInterruptibly();
            } catch (InterruptedException e) {
                server.untilWaiting("giveup", 0);
                mode.complete(server.info("giveup").get("mode") + " " + server.info("giveup").get("holders"));
            }
            lock.readLock().unlock();
        });
        thread.start();
        server.untilWaiting("giveup", 1);
        thread.interrupt();
        assertEquals("shared 2", mode.get(20, TimeUnit.SECONDS));
        thread.join();
        other.release();
        assertTrue(server.isFree("giveup"));
    }

    @Test
    void a_side_is_locked_if_somebody_holds_that_side() {
        DReadWriteLock lock = client.readWriteLock("sides");
        DLock same = client.lock("sides");
        assertFalse(lock.readLock().isLocked() || lock.writeLock().isLocked() || same.isLocked());
        lock.writeLock().lock();
        assertFalse(lock.readLock().isLocked());
        assertTrue(lock.writeLock().isLocked() && same.isLocked());
        lock.readLock().lock();
        assertTrue(lock.readLock().isLocked() && lock.writeLock().isLocked() && same.isLocked());
        lock.writeLock().unlock();
        assertTrue(lock.readLock().isLocked() && same.isLocked());
        assertFalse(lock.writeLock().isLocked());
        lock.readLock().unlock();
    }
}
