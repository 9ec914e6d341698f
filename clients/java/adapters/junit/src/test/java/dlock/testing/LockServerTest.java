package dlock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.DLockClient;
import dlock.Hold;
import dlock.Lease;
import java.time.Duration;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** All tests of a class share the server of a static field, and may move its clock. */
final class LockServerTest {
    @RegisterExtension
    static final LockServer shared = new LockServer();

    @RegisterExtension
    final LockServer own = new LockServer("--set", "max-hold=60000");

    private static final Set<Integer> sharedPorts = new HashSet<>();

    @Test
    void aLeaseEndsWithoutWaiting() throws Exception {
        try (DLockClient first = DLockClient.connect(shared.url());
                DLockClient second = DLockClient.connect(shared.url())) {
            Hold hold = first.lock("job").withLease(Lease.fixed(Duration.ofMinutes(1))).acquire();
            assertEquals(Optional.empty(), second.lock("job").tryAcquire(Duration.ZERO));
            shared.advance(Duration.ofSeconds(61));
            Hold next = second.lock("job").tryAcquire(Duration.ZERO).orElseThrow();
            assertTrue(next.fencingToken() > hold.fencingToken());
        }
    }

    /** Runs twice, so that two tests record the port of the shared server. */
    @RepeatedTest(2)
    void theInstanceFieldHasAServerBesideThatOfTheStaticField() {
        assertNotEquals(shared.port(), own.port());
        sharedPorts.add(shared.port());
    }

    @AfterAll
    static void allTestsHadTheSameServerInTheStaticField() {
        assertEquals(1, sharedPorts.size());
        assertTrue(shared.url().endsWith(":" + sharedPorts.iterator().next()));
    }

    /** A nested class neither starts another server for the static field nor stops that server. */
    @Nested
    class Inside {
        @Test
        void recordsTheServerOfTheStaticField() {
            sharedPorts.add(shared.port());
        }
    }
}
