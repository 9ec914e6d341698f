package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The commands, word for word. */
final class CommandsTest {
    private static final long NOT_AT_ALL = DedicatedConnection.NOT_AT_ALL;
    private static final Lease LEASE = Lease.renewed(Duration.ofSeconds(30));
    private static final Lease SESSION = Lease.session(Duration.ofSeconds(30));

    @Test
    void a_lock_is_reentrant() {
        Request request = Request.lock(List.of("job:1"), Request.Mode.EXCLUSIVE, LEASE);
        assertEquals("DLOCK.RACQUIRE job:1 me PX 30000 REQUEST 7", words(request, false, NOT_AT_ALL));
        Request bound = Request.lock(List.of("job:1"), Request.Mode.EXCLUSIVE, SESSION);
        assertEquals("DLOCK.RACQUIRE job:1 me PX 30000 BLOCK 0 SESSION REQUEST 7", words(bound, true, 0));
        assertEquals("DLOCK.RACQUIRE job:1 me PX 30000 REQUEST 7", words(bound, false, NOT_AT_ALL));
    }

    @Test
    void readers_and_writers_have_commands_of_their_own() {
        Request reading = Request.lock(List.of("doc"), Request.Mode.READ, LEASE);
        assertEquals("DLOCK.RLOCK doc me PX 30000 BLOCK 10 REQUEST 7", words(reading, false, 10));
        Request writing = Request.lock(List.of("doc"), Request.Mode.WRITE, LEASE);
        assertEquals("DLOCK.WLOCK doc me PX 30000 REQUEST 7", words(writing, false, NOT_AT_ALL));
    }

    @Test
    void several_locks_are_sent_with_their_number() {
        Request request = Request.lock(List.of("a", "b", "c"), Request.Mode.EXCLUSIVE, SESSION);
        assertEquals("DLOCK.MACQUIRE 3 a b c me PX 30000 BLOCK 5 SESSION REQUEST 7", words(request, true, 5));
    }

    @Test
    void permits_are_requested_with_their_limit() {
        Request request = Request.permits("pool", 10, 3, LEASE);
        assertEquals("DLOCK.SACQUIRE pool me 10 PERMITS 3 PX 30000 REQUEST 7", words(request, false, NOT_AT_ALL));
    }

    @Test
    void permits_are_given_back_newest_first_and_in_parts() {
        Recorder server = new Recorder();
        try (DLockClient client = TestServer.patient().driver(server).connect()) {
            DSemaphore permits = client.semaphore("pool", 10);
            assertTrue(permits.tryAcquire(2));
            assertTrue(permits.tryAcquire(3));
            assertEquals(102, permits.fencingToken());
            server.commands.clear();
            permits.release(4);
            assertEquals(List.of("DLOCK.RELEASE pool * READ ALL TOKEN 102",
                    "DLOCK.RELEASE pool * READ PERMITS 1 TOKEN 101 REQUEST *"), server.sorted());
            assertThrows(IllegalStateException.class, () -> permits.release(2));
            server.commands.clear();
            permits.release();
            assertEquals(List.of("DLOCK.RELEASE pool * READ ALL TOKEN 101"), server.sorted());
            assertThrows(IllegalStateException.class, permits::release);
        }
    }

    @Test
    void several_locks_are_entered_again_without_a_command() {
        Recorder server = new Recorder();
        try (DLockClient client = TestServer.patient().driver(server).connect()) {
            DLock lock = client.lock("a", "b");
            lock.lock();
            assertEquals(List.of("DLOCK.MACQUIRE 2 a b * PX 30000 REQUEST *"), server.sorted());
            lock.lock();
            lock.unlock();
            assertEquals(1, server.commands.size());
            server.commands.clear();
            lock.unlock();
            assertEquals(List.of("DLOCK.RELEASE a * WRITE ALL TOKEN 101",
                    "DLOCK.RELEASE b * WRITE ALL TOKEN 101"), server.sorted());
        }
    }

    /** A server that grants everything, and records the commands. */
    private static final class Recorder implements Driver {
        final List<String> commands = Collections.synchronizedList(new ArrayList<>());
        private final AtomicLong token = new AtomicLong(100);

        @Override
        public Object call(byte[]... arguments) {
            // Owners and request ids are new each time, so `*` replaces them.
            String command = Arrays.stream(arguments).map(Words::text).collect(Collectors.joining(" "))
                    .replaceAll("\\S+:\\d+:[0-9a-f]{16}", "*").replaceAll("REQUEST \\w+", "REQUEST *");
            commands.add(command);
            if (command.startsWith("DLOCK.RELEASE")) {
                return command.contains("PERMITS") ? 0L : 1L;
            }
            return token.incrementAndGet();
        }

        List<String> sorted() {
            return commands.stream().sorted().collect(Collectors.toList());
        }
    }

    private static String words(Request request, boolean session, long block) {
        return Arrays.stream(request.acquire("me", "7", session, block)).map(Words::text)
                .collect(Collectors.joining(" "));
    }
}
