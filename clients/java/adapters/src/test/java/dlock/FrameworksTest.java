package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.shedlock.DLockProvider;
import dlock.spring.DLockRegistry;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.integration.support.locks.LockRegistry;

/** The adapters with the frameworks' own code. */
final class FrameworksTest {
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

    private static LockConfiguration task(String name, long mostMillis, long leastMillis) {
        return new LockConfiguration(
                Instant.now(), name, Duration.ofMillis(mostMillis), Duration.ofMillis(leastMillis));
    }

    // ShedLock

    @Test
    void a_task_runs_on_one_machine() {
        DefaultLockingTaskExecutor here = new DefaultLockingTaskExecutor(new DLockProvider(client));
        try (DLockClient other = server.client()) {
            DefaultLockingTaskExecutor there = new DefaultLockingTaskExecutor(new DLockProvider(other));
            AtomicInteger runs = new AtomicInteger();
            here.executeWithLock((Runnable) () -> {
                runs.incrementAndGet();
                elsewhere(() -> {
                    there.executeWithLock((Runnable) runs::incrementAndGet, task("report", 60_000, 0));
                    return null;
                });
            }, task("report", 60_000, 0));
            assertEquals(1, runs.get());
            assertTrue(server.isFree("job-lock:report"));
            there.executeWithLock((Runnable) runs::incrementAndGet, task("report", 60_000, 0));
            assertEquals(2, runs.get());
        }
    }

    @Test
    void a_task_is_locked_at_most_and_at_least_for_its_times() throws Exception {
        DLockProvider provider = new DLockProvider(client);
        provider.lock(task("most", 4000, 0)).orElseThrow();
        assertEquals(Optional.empty(), provider.lock(task("most", 4000, 0)));
        soon("its time is over", () -> server.isFree("job-lock:most"));
        SimpleLock lock = provider.lock(task("least", 60_000, 6000)).orElseThrow();
        lock.unlock();
        assertFalse(server.isFree("job-lock:least"));
        long left = (long) server.run("PTTL", "job-lock:least");
        assertTrue(left > 0 && left <= 6000, left + " ms");
        assertEquals(Optional.empty(), provider.lock(task("least", 60_000, 0)));
        soon("it is free then", () -> server.isFree("job-lock:least"));
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    void a_task_can_be_extended_until_it_is_lost() {
        DLockProvider provider = new DLockProvider(client);
        SimpleLock lock = provider.lock(task("extended", 30_000, 0)).orElseThrow();
        SimpleLock longer = lock.extend(Duration.ofMinutes(1), Duration.ZERO).orElseThrow();
        assertTrue((long) server.run("PTTL", "job-lock:extended") > 50_000);
        assertThrows(IllegalStateException.class, () -> lock.extend(Duration.ofMinutes(1), Duration.ZERO));
        server.run("DEL", "job-lock:extended");
        assertEquals(Optional.empty(), longer.extend(Duration.ofMinutes(1), Duration.ZERO));
    }

    @Test
    void without_a_server_a_task_does_not_run() {
        try (TestServer other = TestServer.start(); DLockClient its = DLockClient.connect(other.url())) {
            other.kill();
            assertThrows(UnavailableException.class, () -> new DLockProvider(its).lock(task("gone", 1000, 0)));
        }
    }

    // Spring Integration

    @Test
    @SuppressWarnings("rawtypes")
    void a_registry_has_locks() throws Throwable {
        DLockRegistry own = new DLockRegistry(client, "orders:");
        LockRegistry registry = own;
        AtomicInteger inside = new AtomicInteger();
        registry.executeLocked("7", () -> {
            inside.incrementAndGet();
            assertFalse(server.isFree("orders:7"));
            assertFalse(elsewhere(() -> registry.obtain("7").tryLock()));
            // The lock is entered again.
            registry.executeLocked("7", inside::incrementAndGet);
            own.renewLock("7");
            own.renewLock("7", Duration.ofMinutes(5));
            assertTrue((long) server.run("PTTL", "orders:7") > 100_000);
        });
        assertEquals(2, inside.get());
        assertTrue(server.isFree("orders:7"));
        server.run("DLOCK.ACQUIRE", "orders:8", "other");
        assertThrows(TimeoutException.class,
                () -> registry.executeLocked("8", Duration.ofMillis(1000), () -> inside.incrementAndGet()));
        assertThrows(IllegalMonitorStateException.class, () -> own.renewLock("9"));
        CompletableFuture<Void> waiting = CompletableFuture.runAsync(() -> {
            registry.obtain("8").lock();
            registry.obtain("8").unlock();
        }, run -> new Thread(run).start());
        server.untilWaiting("orders:8", 1);
        server.run("DLOCK.RELEASE", "orders:8", "other");
        waiting.get(20, TimeUnit.SECONDS);
        assertEquals(List.of(), server.each("orders:8", "holds", "owner"));
    }
}
