package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** At times a machine has no room for a further thread, and an executor throws. The client goes on afterwards. */
final class ExecutorTest {
    private static TestServer server;

    /** How many of the next tasks the executor refuses. */
    private final AtomicInteger failing = new AtomicInteger();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private DLockClient client;

    @BeforeAll
    static void start() {
        // With a grace, a hold outlives its connection and can be bound again.
        server = TestServer.start("--dlock.session-grace", "20000");
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @BeforeEach
    void connect() {
        client = TestServer.patient().url(server.url()).executor(this::execute).connect();
        // Opens the first connection before a test lets the executor fail.
        client.lock("warm").withLock(() -> {});
    }

    @AfterEach
    void end() {
        client.close();
        threads.shutdown();
    }

    private void execute(Runnable task) {
        if (failing.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
            throw new InternalError("no room for a thread"); // An OutOfMemoryError would end JUnit, too.
        }
        threads.execute(task);
    }

    /** Waits until the executor has thrown. */
    private void failed() {
        soon("the executor has failed", () -> failing.get() == 0);
    }

    @Test
    void a_connection_that_is_not_made_again_at_once_costs_no_other_lock() throws Exception {
        Hold hold = client.lock("bound").withLease(Lease.session(Duration.ofSeconds(20))).acquire();
        failing.set(1);
        server.run("CLIENT", "KILL", "ID", server.each("bound", "holds", "session").get(0));
        failed();
        assertTrue(client.lock("other").tryAcquire(Duration.ofSeconds(5)).isPresent());
        soon("the hold is bound again", hold::isHeld);
        hold.release();
    }

    @Test
    void a_future_completes_although_the_executor_throws() throws Exception {
        failing.set(1);
        client.lock("async").acquireAsync().get(5, TimeUnit.SECONDS).release();
        failed();
        assertTrue(server.isFree("async"));
    }

    @Test
    void a_wait_goes_on_when_its_connection_has_ended() throws Exception {
        Hold first = client.lock("waited").acquire();
        CompletableFuture<Hold> next = client.lock("waited").acquireAsync();
        soon("the second request waits", () -> client.lock("waited").getQueueLength() == 1);
        failing.set(1);
        server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        failed();
        first.release();
        next.get(10, TimeUnit.SECONDS).release();
    }

    @Test
    void a_watch_goes_on_after_the_executor_has_thrown() throws Exception {
        Queue<Boolean> told = new ConcurrentLinkedQueue<>();
        try (Watcher watch = client.watch("watched", holder -> told.add(holder.isPresent()))) {
            soon("the watch reports the free lock", () -> told.size() == 1);
            failing.set(1);
            Hold hold = client.lock("watched").acquire();
            failed();
            soon("the watch reports the grant", () -> told.size() == 2);
            hold.release();
            soon("the watch reports the release", () -> told.size() == 3);
        }
    }

    /** If a request started a thread and that failed, the caller would get an error, and the hold would stay. */
    @Test
    void the_first_lock_needs_no_further_thread() {
        try (DLockClient fresh = TestServer.patient().url(server.url()).executor(this::execute).connect()) {
            // Makes every start of a thread by this thread fail.
            InheritableThreadLocal<Boolean> none = new InheritableThreadLocal<>() {
                @Override
                protected Boolean childValue(Boolean parent) {
                    throw new InternalError("no room for a thread");
                }
            };
            none.set(true);
            try {
                fresh.lock("first").withLock(() -> {});
            } finally {
                none.remove();
            }
        }
        assertTrue(server.isFree("first"));
    }

    @Test
    void a_loss_is_reported_although_the_executor_throws() throws Exception {
        Hold hold = client.lock("lost").acquire();
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        server.run("DEL", "lost");
        failing.set(1);
        hold.check();
        failed();
        lost.get(5, TimeUnit.SECONDS);
    }
}
