package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Locks over another Redis client, which has blocking sockets, RESP2, a pool and a read timeout. */
final class DriverTest {
    /** In ms. The longest wait of one command is shorter. */
    private static final int READ_TIMEOUT = 4000;

    private static TestServer server;
    private static Pool pool;
    private static DLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        pool = new Pool(server.port);
        client = DLockClient.builder().driver(pool).longestWait(Duration.ofMillis(3200))
                .patience(Duration.ofSeconds(15)).connect();
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    @Test
    void a_lock_excludes_and_is_entered_again() {
        DLock lock = client.lock("excludes");
        lock.lock();
        lock.lock();
        assertEquals(2, server.count("excludes"));
        assertFalse(elsewhere(() -> lock.tryLock()));
        assertTrue(lock.isLocked());
        lock.unlock();
        lock.unlock();
        assertTrue(server.isFree("excludes"));
    }

    @Test
    void waits_longer_than_the_read_timeout_keep_their_places() throws Exception {
        server.servesInOrder(client.lock("places"), 3L * READ_TIMEOUT / 2);
    }

    @Test
    void races_of_interrupt_against_grant_leave_no_hold() throws Exception {
        DLock lock = client.lock("race");
        for (int round = 0; round < 50; round++) {
            Hold hold = lock.acquire();
            Thread thread = new Thread(() -> {
                try {
                    lock.lockInterruptibly();
                    lock.unlock();
                } catch (InterruptedException e) {
                    // The interrupt came before the grant.
                }
            });
            thread.start();
            server.untilWaiting("race", 1);
            CompletableFuture<Boolean> released = hold.releaseAsync();
            // The interrupt follows the release after 0 to 1 ms, in which the grant comes.
            for (long end = System.nanoTime() + round * 20_000L; System.nanoTime() < end; ) {
                Thread.onSpinWait();
            }
            thread.interrupt();
            thread.join(20_000);
            released.join();
            assertFalse(thread.isAlive());
            soon("nothing is left of round " + round, () -> server.isFree("race"));
        }
    }

    @Test
    void a_timed_wait_ends() throws Exception {
        DLock lock = client.lock("timed");
        Hold hold = lock.acquire();
        long start = System.nanoTime();
        refused(() -> lock.tryLock(900, TimeUnit.MILLISECONDS));
        assertTrue(System.nanoTime() - start >= TimeUnit.MILLISECONDS.toNanos(899));
        server.untilWaiting("timed", 0);
        hold.release();
    }

    @Test
    void waits_end_at_their_limits_even_if_the_server_hangs() throws Exception {
        Hold hold = client.lock("limits").acquire();
        CompletableFuture<InterruptedException> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> interrupted.complete(
                assertThrows(InterruptedException.class, client.lock("limits")::lockInterruptibly)));
        thread.start();
        server.untilWaiting("limits", 1);
        server.freeze();
        try {
            Stopwatch took = new Stopwatch();
            thread.interrupt();
            interrupted.get(20, TimeUnit.SECONDS);
            took.within(100);
            took = new Stopwatch();
            assertThrows(UnavailableException.class, () -> client.lock("limits").tryLock(100, TimeUnit.MILLISECONDS));
            took.at(100);
            took = new Stopwatch();
            assertThrows(UnavailableException.class, client.lock("limits:free")::tryLock);
            took.within(1000);
        } finally {
            server.thaw();
        }
        server.untilWaiting("limits", 0);
        hold.release();
        soon("nothing is left", () -> server.isFree("limits") && server.isFree("limits:free"));
    }

    @Test
    void a_hold_outlasts_its_lease_because_it_is_renewed() throws Exception {
        Hold hold = client.lock("renewed").withLease(Lease.renewed(Duration.ofSeconds(8))).acquire();
        Thread.sleep(8500);
        assertTrue(hold.check());
        hold.release();
    }

    @Test
    void a_call_whose_reply_is_lost_is_repeated() {
        DLock lock = client.lock("fails");
        int before = pool.failed.get();
        pool.failAfter = "DLOCK.RACQUIRE";
        lock.lock();
        assertEquals(before + 1, pool.failed.get());
        assertEquals(1, server.count("fails"));
        pool.failAfter = "DLOCK.RELEASE";
        lock.unlock();
        assertEquals(before + 2, pool.failed.get());
        assertTrue(server.isFree("fails"));
    }

    /** The first call of a wait fails behind the second one, which has taken over its place, and arrives later. */
    @Test
    void a_call_that_fails_behind_the_next_one_and_arrives_late_leaves_nothing() throws Exception {
        Lease lease = Lease.fixed(Duration.ofMinutes(10));
        for (boolean isGranted : new boolean[] {true, false}) {
            String name = "behind:" + isGranted;
            CompletableFuture<byte[][]> first = new CompletableFuture<>();
            CountDownLatch second = new CountDownLatch(1);
            Driver fails = words -> {
                boolean waits = Stream.of(words).anyMatch(word -> Words.text(word).equals("BLOCK"));
                if (waits && first.complete(words)) {
                    second.await();
                    throw new IOException("Read timed out");
                }
                if (waits) {
                    second.countDown();
                }
                return pool.call(words);
            };
            Duration longest = Duration.ofMillis(1600);
            try (DLockClient over = DLockClient.builder().driver(fails).longestWait(longest).connect()) {
                server.run("DLOCK.ACQUIRE", name, "other");
                DLock lock = over.lock(name).withLease(lease);
                CompletableFuture<Optional<Hold>> asked = lock.tryAcquireAsync(Duration.ofSeconds(isGranted ? 20 : 3));
                second.await();
                if (isGranted) {
                    server.untilWaiting(name, 1);
                    server.run("DLOCK.RELEASE", name, "other");
                    asked.get(20, TimeUnit.SECONDS).orElseThrow().release();
                } else {
                    assertEquals(Optional.empty(), asked.get(20, TimeUnit.SECONDS));
                    server.run("DLOCK.RELEASE", name, "other");
                }
                pool.call(first.join());
                soon("nobody has it", () -> server.isFree(name));
            }
        }
    }

    /** The call that takes over the place of a wait that is given up fails, and arrives later. */
    @Test
    void a_call_that_leaves_the_queue_and_arrives_late_leaves_nothing() throws Exception {
        CompletableFuture<byte[][]> leaving = new CompletableFuture<>();
        Driver fails = words -> {
            for (int i = 0; i + 1 < words.length; i++) {
                boolean leaves = Words.text(words[i]).equals("BLOCK") && Words.text(words[i + 1]).equals("1");
                if (leaves && leaving.complete(words)) {
                    throw new IOException("Read timed out");
                }
            }
            return pool.call(words);
        };
        try (DLockClient over = DLockClient.builder().driver(fails).longestWait(Duration.ofMillis(1600)).connect()) {
            server.run("DLOCK.ACQUIRE", "leaves", "other");
            long before = server.calls("release");
            CompletableFuture<Hold> asked =
                    over.lock("leaves").withLease(Lease.fixed(Duration.ofMinutes(10))).acquireAsync();
            server.untilWaiting("leaves", 1);
            asked.cancel(false);
            soon("the client releases", () -> server.calls("release") > before);
            server.run("DLOCK.RELEASE", "leaves", "other");
            pool.call(leaving.join());
            soon("nobody has it", () -> server.isFree("leaves"));
        }
    }

    /** The pool plays a client that follows Sentinel: some time after the failover, it connects to the new primary. */
    @Test
    void a_failover_is_followed() throws Exception {
        try (TestServer primary = TestServer.start("--repl-diskless-sync-delay", "0");
                TestServer replica = TestServer.start("--replicaof", "127.0.0.1 " + primary.port)) {
            Pool moved = new Pool(primary.port);
            try (DLockClient over = DLockClient.builder().driver(moved).connect()) {
                soon("the replica is in step", () -> primary.run("WAIT", 1, 100).equals(1L));
                Hold hold = over.lock("failover").acquire();
                CompletableFuture<Hold> waiting = over.lock("failover").acquireAsync();
                primary.untilWaiting("failover", 1);
                soon("the replica has the lock", () -> !replica.isFree("failover"));
                replica.run("REPLICAOF", "NO", "ONE");
                primary.run("REPLICAOF", "127.0.0.1", replica.port);
                // Until the pool connects to the new primary, the former one refuses.
                assertThrows(DLockException.class, () -> over.lock("other").tryLock(300, TimeUnit.MILLISECONDS));
                moved.leadTo(replica.port);
                replica.untilWaiting("failover", 1);
                assertTrue(hold.check());
                assertFalse(waiting.isDone());
                hold.release();
                Hold next = waiting.get(20, TimeUnit.SECONDS);
                assertTrue(next.fencingToken() > hold.fencingToken());
                next.release();
                soon("nothing is left", () -> replica.isFree("failover") && replica.isFree("other"));
            }
        }
    }

    @Test
    void a_lease_of_a_session_is_refused() {
        Lease session = Lease.session(Duration.ofSeconds(1));
        assertThrows(IllegalArgumentException.class, () -> client.lock("session").withLease(session));
        assertThrows(IllegalArgumentException.class, () -> client.semaphore("session", 1).withLease(session));
    }

    @Test
    void errors_of_the_server_are_found_in_wrapped_exceptions() {
        server.run("SET", "string", "value");
        ServerException refused = assertThrows(ServerException.class, client.lock("string")::lock);
        assertEquals("WRONGTYPE", refused.code());
        Exception wrapped = new RuntimeException("Error in execution", new RuntimeException("DEADLOCK a waits for b"));
        assertTrue(DriverBackend.failure(wrapped) instanceof DeadlockException);
        assertTrue(DriverBackend.failure(new RuntimeException("Read timed out")) instanceof Unanswered);
        assertTrue(DriverBackend.failure(new RuntimeException()) instanceof Unanswered);
    }

    /** A plain client: each call takes a connection that another call has left, or a new one. */
    private static final class Pool implements Driver {
        private volatile int port;
        private final Deque<Socket> idle = new ConcurrentLinkedDeque<>();
        /** The command whose next reply is lost; null: none. */
        private volatile String failAfter;
        /** How many replies were lost. */
        private final AtomicInteger failed = new AtomicInteger();

        Pool(int port) {
            this.port = port;
        }

        /** Lets new calls go to the server at another port. */
        void leadTo(int other) {
            port = other;
            idle.clear();
        }

        @Override
        public Object call(byte[]... arguments) throws IOException {
            Socket socket = idle.poll();
            if (socket == null) {
                socket = new Socket(InetAddress.getLoopbackAddress(), port);
                socket.setSoTimeout(READ_TIMEOUT);
            }
            boolean usable = false;
            try {
                socket.getOutputStream().write(Resp.encode(arguments));
                Object reply = read(socket);
                if (Words.text(arguments[0]).equals(failAfter)) {
                    failAfter = null;
                    failed.incrementAndGet();
                    throw new IOException("Unexpected end of stream.");
                }
                usable = true;
                if (reply instanceof Resp.ErrorReply) {
                    throw new IllegalStateException("wrapped", new RuntimeException(reply.toString()));
                }
                return reply;
            } finally {
                if (usable && socket.getPort() == port) {
                    idle.push(socket);
                } else {
                    socket.close();
                }
            }
        }

        private static Object read(Socket socket) throws IOException {
            Resp.Decoder decoder = new Resp.Decoder();
            byte[] buffer = new byte[4096];
            for (;;) {
                int count = socket.getInputStream().read(buffer);
                if (count < 0) {
                    throw new IOException("Unexpected end of stream.");
                }
                decoder.feed(ByteBuffer.wrap(buffer, 0, count));
                Object reply = decoder.next();
                if (reply != Resp.Decoder.INCOMPLETE) {
                    return reply;
                }
            }
        }
    }
}
