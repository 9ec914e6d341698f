package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.LongFunction;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** Connections to a node of a cluster that are made late: none of them stays open, or sends what is out of date. */
final class PinnedTest {
    private static final byte[][] BEAT = Words.command("DLOCK.SESSION");

    /** A server to which connections are made when the test says so. */
    private static final class Slow implements Backend {
        final ArrayDeque<CompletableFuture<DedicatedConnection>> wanted = new ArrayDeque<>();

        Fake connects() {
            Fake made = new Fake();
            wanted.remove().complete(made);
            return made;
        }

        @Override
        public CompletableFuture<DedicatedConnection> dedicated(String key) {
            CompletableFuture<DedicatedConnection> connection = new CompletableFuture<>();
            wanted.add(connection);
            return connection;
        }

        @Override
        public boolean hasOwnConnections() {
            return true;
        }

        @Override
        public boolean isCluster() {
            return true;
        }

        @Override
        public CompletableFuture<String> serverOf(String key) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void distrust(String key) {}

        @Override
        public boolean together(String one, String other) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Object> ask(String key, byte[][] command) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void close() {}
    }

    /** A connection that answers at once, and notes what becomes of it. */
    private static final class Fake implements DedicatedConnection {
        final List<String> events = new ArrayList<>();

        @Override
        public CompletableFuture<Object> ask(byte[][] command, long millis) {
            events.add("asked");
            return CompletableFuture.completedFuture(1L);
        }

        @Override
        public CompletableFuture<Object> leave(List<byte[][]> undo) {
            events.add("left");
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void giveBack() {
            events.add("given back");
        }

        @Override
        public CompletableFuture<Object> request(LongFunction<byte[][]> command, Limits limit, boolean waits) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Object> askPatiently(byte[][] command) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long answered() {
            throw new UnsupportedOperationException();
        }

        @Override
        public void whenEnded(Runnable task) {}

        @Override
        public void whenInvalidated(Runnable task) {}
    }

    private final Slow backend = new Slow();
    private final Pinned pinned = new Pinned(backend, () -> "key");
    /** Ends the time of the last command. */
    private CompletableFuture<Object> asked;

    private final UnaryOperator<CompletableFuture<Object>> limited = answer -> {
        asked = answer.copy();
        return asked;
    };

    private void timesOut(CompletableFuture<Object> answer) {
        asked.completeExceptionally(new Unanswered("no reply", null));
        assertThrows(CompletionException.class, answer::join);
    }

    @Test
    void a_connection_that_comes_after_the_limit_is_given_back_unused() {
        timesOut(pinned.ask(BEAT, limited));
        CompletableFuture<Object> next = pinned.ask(BEAT, limited);
        Fake late = backend.connects();
        assertEquals(List.of("given back"), late.events);
        Fake own = backend.connects();
        assertEquals(1L, next.join());
        assertEquals(1L, pinned.ask(BEAT, limited).join());
        pinned.end();
        assertEquals(List.of("asked", "asked", "left"), own.events);
        assertEquals(List.of("given back"), late.events);
    }

    @Test
    void a_connection_that_comes_after_the_end_is_given_back_unused() {
        CompletableFuture<Object> answer = pinned.ask(BEAT, limited);
        pinned.end();
        assertEquals(List.of("given back"), backend.connects().events);
        assertThrows(CompletionException.class, answer::join);
    }

    @Test
    void of_two_connections_one_is_kept() {
        CompletableFuture<Object> one = pinned.ask(BEAT, limited);
        CompletableFuture<Object> other = pinned.ask(BEAT, limited);
        Fake kept = backend.connects();
        Fake second = backend.connects();
        assertEquals(1L, one.join());
        assertEquals(1L, other.join());
        pinned.end();
        assertEquals(List.of("asked", "asked", "left"), kept.events);
        assertEquals(List.of("given back"), second.events);
    }
}
