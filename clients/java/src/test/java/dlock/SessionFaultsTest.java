package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Named sessions of which some commands fail while the others are answered. */
final class SessionFaultsTest {
    private static final Duration TIMEOUT = Duration.ofSeconds(6);

    private TestServer server;

    @BeforeEach
    void start() {
        server = TestServer.start();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    /** Ways in which a command fails. */
    private enum Fault {
        /** The server writes nothing at present. */
        REFUSED,
        /** The connection ends. */
        LOST,
        /** No answer comes. */
        SILENT,
        /** The command is executed, and then the connection ends. */
        UNREAD
    }

    /** A way to the server on which the next commands with a name fail. */
    private static final class Faulty implements Driver {
        private final TestServer server;
        private volatile String failing = "";
        private volatile Fault fault;
        private final AtomicInteger left = new AtomicInteger();
        /** Opened at the end of the test. */
        private final CountDownLatch ended = new CountDownLatch(1);
        final AtomicInteger heartbeats = new AtomicInteger();

        Faulty(TestServer server) {
            this.server = server;
        }

        void fail(String command, Fault how, int times) {
            fault = how;
            left.set(times);
            failing = command;
        }

        @Override
        public Object call(byte[]... arguments) throws Exception {
            String command = Words.text(arguments[0]);
            if (command.equals("DLOCK.SESSION")) {
                heartbeats.incrementAndGet();
            }
            if (!command.equals(failing) || left.getAndDecrement() <= 0) {
                return server.run((Object[]) arguments);
            }
            switch (fault) {
                case REFUSED:
                    throw new IOException("NOREPLICAS Not enough good replicas to write.");
                case SILENT:
                    ended.await();
                    break;
                case UNREAD:
                    server.run((Object[]) arguments);
                    break;
                default:
            }
            throw new IOException("the connection ended");
        }
    }

    private interface Play {
        void with(Faulty way, DLockClient client) throws Exception;
    }

    private void over(Play play) throws Exception {
        Faulty way = new Faulty(server);
        try (DLockClient client = TestServer.patient().driver(way).connect()) {
            play.with(way, client);
        } finally {
            way.ended.countDown();
        }
    }

    private static Hold hold(DLockClient client, Session session, String name) throws Exception {
        return client.lock(name).withLease(Lease.of(session)).acquire();
    }

    private static LockLostException soonLost(Hold hold) throws Exception {
        CompletableFuture<LockLostException> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        return lost.get(30, TimeUnit.SECONDS);
    }

    /** The answer to a heartbeat says that the server lacks a hold. Nothing proves which one, so none is believed in. */
    @Test
    void heartbeats_do_not_keep_a_lock_that_cannot_be_bound_again() throws Exception {
        for (Fault fault : List.of(Fault.REFUSED, Fault.LOST, Fault.SILENT)) {
            over((way, client) -> {
                Session session = client.openSession(TIMEOUT);
                hold(client, session, "stays");
                Hold gone = hold(client, session, "gone");
                way.fail("DLOCK.RENEW", fault, Integer.MAX_VALUE);
                server.run("DEL", "gone");
                Stopwatch took = new Stopwatch();
                soonLost(gone);
                took.within(TIMEOUT.toMillis());
                assertTrue(session.isOpen(), fault.toString());
            });
            server.run("FLUSHALL");
        }
    }

    @Test
    void a_lock_that_the_server_has_is_bound_again_after_a_fault() throws Exception {
        for (Fault fault : List.of(Fault.REFUSED, Fault.LOST, Fault.SILENT)) {
            over((way, client) -> {
                Session session = client.openSession(TIMEOUT.multipliedBy(3));
                Hold stays = hold(client, session, "stays");
                Hold gone = hold(client, session, "gone");
                way.fail("DLOCK.RENEW", fault, 2);
                server.run("DEL", "gone");
                soonLost(gone);
                soon("the other one is bound", () -> way.left.get() < 0
                        && stays.remaining().compareTo(TIMEOUT.multipliedBy(2).plusSeconds(1)) > 0);
                assertTrue(stays.check() && session.isOpen(), fault.toString());
                session.close();
            });
        }
    }

    @Test
    void releases_that_get_no_answer_hold_up_no_heartbeats() throws Exception {
        over((way, client) -> {
            Session session = client.openSession(TIMEOUT.dividedBy(2));
            Hold stays = hold(client, session, "stays");
            List<Hold> released = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                released.add(hold(client, session, "released:" + i));
            }
            way.fail("DLOCK.RELEASE", Fault.SILENT, Integer.MAX_VALUE);
            released.forEach(Hold::releaseAsync);
            int tried = Integer.MAX_VALUE - released.size();
            soon("the session repeats them", () -> way.left.get() < tried);
            long end = System.nanoTime() + TIMEOUT.multipliedBy(2).toNanos();
            while (System.nanoTime() - end < 0) {
                assertTrue(session.isOpen() && stays.isHeld());
                Thread.sleep(20);
            }
            way.left.set(0);
            soon("they are repeated again", () -> released.stream().allMatch(hold -> server.isFree(hold.names().get(0))));
        });
    }

    /** The server answers heartbeats, but no requests and no releases. It renews no locks either. */
    @Test
    void a_server_that_pauses_its_writes_keeps_the_session() throws Exception {
        try (DLockClient client = TestServer.patient().url(server.url()).timeout(Duration.ofSeconds(1)).connect()) {
            Session session = client.openSession(TIMEOUT.dividedBy(4));
            Hold other = hold(client, session, "other");
            server.run("CLIENT", "PAUSE", 15_000, "WRITE");
            long end = System.nanoTime() + Duration.ofSeconds(15).toNanos();
            DLock lock = client.lock("job").withLease(Lease.of(session));
            assertThrows(UnavailableException.class, () -> lock.tryAcquire(Duration.ofMillis(500)));
            other.releaseAsync();
            while (System.nanoTime() - end < 0) {
                assertTrue(session.isOpen());
                Thread.sleep(20);
            }
            soon("nobody has them", () -> server.isFree("job") && server.isFree("other"));
            lock.lock();
            assertTrue(lock.hold().check());
            lock.unlock();
        }
    }

    /** The program hangs after its last beat. The package does not speak for it. */
    @Test
    void a_manual_session_repeats_no_heartbeat_by_itself() throws Exception {
        over((way, client) -> {
            Session session = client.openManualSession(TIMEOUT);
            Hold hold = hold(client, session, "unread");
            int before = way.heartbeats.get();
            way.fail("DLOCK.SESSION", Fault.UNREAD, Integer.MAX_VALUE);
            session.beat();
            soonLost(hold);
            assertEquals(before + 1, way.heartbeats.get());
            soon("the server frees the lock", () -> server.isFree("unread"));
        });
        over((way, client) -> {
            Session session = client.openManualSession(TIMEOUT);
            hold(client, session, "gone");
            Hold stays = hold(client, session, "unbound");
            int before = way.heartbeats.get();
            way.fail("DLOCK.RENEW", Fault.REFUSED, Integer.MAX_VALUE);
            server.run("DEL", "gone");
            session.beat();
            soonLost(stays);
            assertEquals(before + 1, way.heartbeats.get());
        });
    }

    @Test
    void a_program_that_goes_on_repeats_the_heartbeats_of_its_manual_session() throws Exception {
        over((way, client) -> {
            Session session = client.openManualSession(TIMEOUT);
            Hold hold = hold(client, session, "job");
            way.fail("DLOCK.SESSION", Fault.LOST, 1);
            long end = System.nanoTime() + TIMEOUT.plusSeconds(1).toNanos();
            while (System.nanoTime() - end < 0) {
                session.beat();
                assertTrue(hold.isHeld());
                Thread.sleep(20);
            }
            assertFalse(way.left.get() > 0);
        });
    }
}
