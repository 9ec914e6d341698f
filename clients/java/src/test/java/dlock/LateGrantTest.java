package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Grants whose answers are late: a hold that a caller gets is one that the server has, and it stays. */
final class LateGrantTest {
    private static final Duration LEASE = Duration.ofMillis(3000);

    private TestServer server;
    private Proxy proxy;
    private DLockClient client;

    @BeforeEach
    void start() {
        server = TestServer.start();
        proxy = new Proxy(server);
        client = TestServer.connected(proxy.url());
        client.lock("warm").lock();
        client.lock("warm").unlock();
    }

    @AfterEach
    void stop() {
        proxy.speak();
        client.close();
        proxy.close();
        server.close();
    }

    private static long ms(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }

    /** Sleeps until this time of {@link System#nanoTime}. */
    private static void until(long time) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(time - System.nanoTime());
    }

    private static List<Function<Duration, Lease>> kinds() {
        return List.of(Lease::renewed, Lease::fixed, Lease::session);
    }

    /** Waits for longer than a third of the lease. The grant comes {@code late} ms late, and later replies in time. */
    private Hold granted(String name, Lease lease, long late) throws Exception {
        server.run("DLOCK.ACQUIRE", name, "other");
        CompletableFuture<Hold> waiting = client.lock(name).withLease(lease).acquireAsync();
        server.untilWaiting(name, 1);
        Thread.sleep(1400);
        proxy.repliesTake = late;
        server.run("DLOCK.RELEASE", name, "other");
        // By then, the proxy has read the grant.
        Thread.sleep(600);
        proxy.repliesTake = 0;
        return waiting.get(20, TimeUnit.SECONDS);
    }

    /** Asserts that the time that remains is not longer than the server's. */
    private void isTrue(Hold hold, String name) {
        long remaining = hold.remaining().toMillis();
        long before = System.nanoTime();
        // Negative, if the server has none.
        long left = Math.max(0, (long) server.run("PTTL", name));
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before) + 1;
        assertTrue(remaining <= left + took, remaining + " ms remain, and the server has " + left);
    }

    /** Asserts what {@link #isTrue} does, and that the hold is held. */
    private void isTrueAndHeld(Hold hold, String name) {
        isTrue(hold, name);
        assertTrue(hold.isHeld(), "it is over when it is returned");
    }

    @Test
    void a_grant_that_is_read_after_its_lease_is_asked_for_again() throws Exception {
        for (int i = 0; i < 2; i++) {
            String name = "after:" + i;
            Hold hold = granted(name, kinds().get(i).apply(LEASE), 4000);
            isTrueAndHeld(hold, name);
            hold.release();
        }
    }

    @Test
    void a_grant_that_is_read_late_has_its_whole_lease_and_stays() throws Exception {
        for (int i = 0; i < kinds().size(); i++) {
            String name = "late:" + i;
            Hold hold = granted(name, kinds().get(i).apply(LEASE), 2600);
            isTrueAndHeld(hold, name);
            assertTrue(hold.remaining().toMillis() > 1400, hold.remaining() + " remain of kind " + i);
            if (i != 1) {
                Thread.sleep(2 * LEASE.toMillis());
                assertTrue(hold.isHeld() && hold.check(), "kind " + i + " is lost");
            }
            hold.release();
        }
    }

    /** The wait was longer than a third of the lease, so a renewal confirms the grant, and its answer is late. */
    @Test
    void what_confirms_a_grant_counts_from_its_sending() throws Exception {
        for (int i = 0; i < 2; i++) {
            String name = "confirm:" + i;
            server.run("DLOCK.ACQUIRE", name, "other");
            CompletableFuture<Hold> waiting =
                    client.lock(name).withLease(kinds().get(i).apply(LEASE)).acquireAsync();
            server.untilWaiting(name, 1);
            Thread.sleep(1400);
            proxy.slowTakes = 3400;
            proxy.slow = new String[] {"DLOCK.CHECK", "DLOCK.RENEW"};
            server.run("DLOCK.RELEASE", name, "other");
            Hold hold = waiting.get(20, TimeUnit.SECONDS);
            isTrueAndHeld(hold, name);
            hold.release();
        }
    }

    /** A repeat is answered with the grant of the first copy, whose lease began earlier. */
    @Test
    void a_repeat_counts_from_the_first_copy() throws Exception {
        // A session is left out: its hold ends with the connection of the first copy, so a repeat gets another grant.
        for (int i = 0; i < 2; i++) {
            String name = "repeat:" + i;
            proxy.silence();
            CompletableFuture<Hold> asking =
                    client.lock(name).withLease(kinds().get(i).apply(Duration.ofSeconds(9))).acquireAsync();
            soon("the first copy is granted", () -> server.count(name) == 1);
            Thread.sleep(1500);
            proxy.speak();
            proxy.cut();
            Hold hold = asking.get(20, TimeUnit.SECONDS);
            isTrueAndHeld(hold, name);
            hold.release();
        }
    }

    /** The cap counts from the grant to an earlier copy, so the server cuts the renewal that confirms the grant. */
    @Test
    void a_repeat_whose_cap_is_near_lasts_no_longer_than_on_the_server() throws Exception {
        Duration lease = Duration.ofSeconds(12);
        for (int i = 0; i < 2; i++) {
            String name = "capped:" + i;
            server.run("DLOCK.ACQUIRE", name, "other");
            CompletableFuture<Hold> waiting =
                    client.lock(name).withLease(kinds().get(i).apply(lease)).withMaxHold(lease).acquireAsync();
            server.untilWaiting(name, 1);
            proxy.silence();
            server.run("DLOCK.RELEASE", name, "other");
            soon("the first copy is granted", () -> server.count(name) == 1);
            Thread.sleep(5000);
            proxy.speak();
            proxy.cut();
            Hold hold = waiting.get(20, TimeUnit.SECONDS);
            isTrueAndHeld(hold, name);
            // Later renewals and questions do not make the hold last longer than on the server, either.
            while (hold.isHeld()) {
                isTrue(hold, name);
                Thread.sleep(100);
            }
        }
    }

    /** The limit passes before the server says what cap a hold of a named session has. */
    @Test
    void a_named_session_knows_the_cap_of_a_hold_that_was_not_confirmed() throws Exception {
        Session session = client.openSession(Duration.ofMillis(6000));
        server.run("DLOCK.ACQUIRE", "named", "other");
        DLock lock = client.lock("named").withLease(Lease.of(session)).withMaxHold(Duration.ofMillis(19_500));
        long requested = System.nanoTime();
        CompletableFuture<Optional<Hold>> waiting = lock.tryAcquireAsync(Duration.ofMillis(9000));
        server.untilWaiting("named", 1);
        until(requested + ms(7500));
        proxy.slowTakes = 3000;
        proxy.slow = new String[] {"DLOCK.INFO"};
        server.run("DLOCK.RELEASE", "named", "other");
        Hold hold = waiting.get(20, TimeUnit.SECONDS).orElseThrow();
        assertTrue(hold.isHeld());
        long began = System.nanoTime();
        while (hold.isHeld()) {
            isTrue(hold, "named");
            Thread.sleep(50);
        }
        assertTrue(System.nanoTime() - began > ms(13_500), "it is lost long before its cap");
        session.close();
    }

    /**
     * Each hold asks for its own cap and for no other, so that many of them do not flood a server that is late already.
     * A hold whose first question is not answered before the limit asks again.
     */
    @Test
    void many_holds_that_were_not_confirmed_ask_for_their_caps_once_each() throws Exception {
        Session session = client.openSession(Duration.ofMillis(6000));
        long requested = System.nanoTime();
        List<CompletableFuture<Optional<Hold>>> waiting = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            server.run("DLOCK.ACQUIRE", "many:" + i, "other");
            waiting.add(client.lock("many:" + i).withLease(Lease.of(session)).tryAcquireAsync(Duration.ofMillis(9000)));
        }
        until(requested + ms(7500));
        server.run("CONFIG", "RESETSTAT");
        proxy.slowTakes = 3000;
        proxy.slow = new String[] {"DLOCK.INFO"};
        for (int i = 0; i < 20; i++) {
            server.run("DLOCK.RELEASE", "many:" + i, "other");
        }
        for (CompletableFuture<Optional<Hold>> each : waiting) {
            assertTrue(each.get(20, TimeUnit.SECONDS).orElseThrow().isHeld());
        }
        soon("each has asked", () -> asked() >= 40);
        assertTrue(asked() <= 100, asked() + " questions");
        session.close();
    }

    private int asked() {
        String calls = new String((byte[]) server.run("INFO", "commandstats"), StandardCharsets.UTF_8)
                .replaceFirst("(?is).*cmdstat_dlock.info:calls=(\\d+),.*", "$1");
        return calls.matches("\\d+") ? Integer.parseInt(calls) : 0;
    }

    /** The server may execute the first renewal, which was cut, after a later one with a longer lease. */
    @Test
    void a_renewal_that_confirms_and_has_no_answer_may_be_executed_later() {
        Attempt attempt = new Attempt(Limits.none(30_000, 0), ms(900));
        attempt.begin();
        attempt.sends(1, 0);
        assertEquals(Attempt.Step.CONFIRM, attempt.granted(1, ms(400)).step);
        attempt.sends(2, ms(400));
        assertEquals(Attempt.Step.CONFIRM, attempt.cut(ms(500)).step);
        attempt.sends(3, ms(500));
        assertEquals(Attempt.Step.GRANTED, attempt.ok(3, ms(600)).step);
        assertTrue(attempt.isOpen(), "the renewal that was cut");
    }

    /** A program without dlock has overwritten the key meanwhile. */
    @Test
    void a_copy_of_a_request_whose_grant_is_over_does_not_refuse_the_next_request() {
        Attempt attempt = new Attempt(Limits.none(30_000, 0), ms(900));
        attempt.begin();
        for (int copy = 1; copy <= 3; copy++) {
            attempt.sends(copy, ms(copy));
            attempt.cut(ms(copy));
        }
        assertEquals(Attempt.Step.CONFIRM, attempt.granted(3, ms(500)).step);
        assertNull(attempt.held(1, ms(510)), "the renewal decides");
        attempt.sends(4, ms(520));
        assertTrue(attempt.gone(4, ms(600)).isFresh);
        attempt.sends(5, ms(600));
        assertNull(attempt.held(2, ms(610)), "it belongs to the request before");
        assertEquals(Attempt.Step.WAIT, attempt.held(5, ms(620)).step);
    }

    /** A server has said that the lock is held, so it is not unreachable, however late its next answer is. */
    @Test
    void a_short_wait_is_refused_though_the_answer_to_it_is_late() throws Exception {
        server.run("DLOCK.ACQUIRE", "short", "other");
        for (Lease lease : List.of(Lease.fixed(LEASE), Lease.session(LEASE))) {
            DLock lock = client.lock("short").withLease(lease);
            // The client is connected, and the first answer comes well before the limits, also on a busy machine.
            client.lock("free").withLease(lease).acquire().release();
            proxy.repliesTake = 500;
            assertEquals(Optional.empty(), lock.tryAcquire(Duration.ofMillis(1500)));
            assertFalse(lock.tryLock(1500, TimeUnit.MILLISECONDS));
            proxy.repliesTake = 0;
        }
        server.untilWaiting("short", 0);
    }
}
