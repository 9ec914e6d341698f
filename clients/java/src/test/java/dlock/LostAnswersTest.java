package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Renewals and releases whose answers do not come: a hold promises what is known. */
final class LostAnswersTest {
    private static final Duration SHORT = Duration.ofSeconds(3);
    private static final Duration LONG = Duration.ofMinutes(1);
    private static final List<Function<Duration, Lease>> KINDS =
            List.of(Lease::renewed, Lease::fixed, Lease::session);

    private static DLockClient impatient(TestServer server) {
        return DLockClient.builder().url(server.url())
                .timeout(Duration.ofMillis(200)).patience(Duration.ofMillis(400)).connect();
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
                    hold.extend(SHORT);
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
    void a_release_without_an_answer_ends_in_time_and_goes_on_behind() throws Exception {
        for (Function<Duration, Lease> kind : KINDS) {
            try (TestServer server = TestServer.start(); DLockClient client = impatient(server)) {
                Hold hold = client.lock("job").withLease(kind.apply(LONG)).acquire();
                server.freeze();
                Stopwatch took = new Stopwatch();
                assertThrows(UnavailableException.class, hold::release);
                took.at(400);
                assertFalse(hold.isHeld());
                assertEquals(Duration.ZERO, hold.remaining());
                server.thaw();
                soon("it is free", () -> server.isFree("job"));
                client.lock("job").acquire().release();
            }
        }
    }
}
