package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** What is sent, word for word. */
final class CommandsTest {
    private static final Lease LEASE = Lease.renewed(Duration.ofSeconds(30));

    @Test
    void a_lock_is_reentrant() {
        Request request = Request.lock(List.of("job:1"), Request.Mode.EXCLUSIVE, LEASE);
        assertEquals("DLOCK.RACQUIRE job:1 me PX 30000 REQUEST 7", words(request, false, Line.NOT_AT_ALL));
        assertEquals("DLOCK.RACQUIRE job:1 me PX 30000 BLOCK 0 SESSION REQUEST 7", words(request, true, 0));
    }

    @Test
    void readers_and_writers_have_commands_of_their_own() {
        Request reading = Request.lock(List.of("doc"), Request.Mode.READ, LEASE);
        assertEquals("DLOCK.RLOCK doc me PX 30000 BLOCK 10 REQUEST 7", words(reading, false, 10));
        Request writing = Request.lock(List.of("doc"), Request.Mode.WRITE, LEASE);
        assertEquals("DLOCK.WLOCK doc me PX 30000 REQUEST 7", words(writing, false, Line.NOT_AT_ALL));
    }

    @Test
    void several_locks_are_counted() {
        Request request = Request.lock(List.of("a", "b", "c"), Request.Mode.EXCLUSIVE, LEASE);
        assertEquals("DLOCK.MACQUIRE 3 a b c me PX 30000 BLOCK 5 SESSION REQUEST 7", words(request, true, 5));
    }

    @Test
    void permits_have_a_limit() {
        Request request = Request.permits("pool", 10, 3, LEASE);
        assertEquals("DLOCK.SACQUIRE pool me 10 PERMITS 3 PX 30000 REQUEST 7", words(request, false, Line.NOT_AT_ALL));
    }

    private static String words(Request request, boolean session, long block) {
        return Arrays.stream(request.acquire("me", "7", session, block)).map(Words::text)
                .collect(Collectors.joining(" "));
    }
}
