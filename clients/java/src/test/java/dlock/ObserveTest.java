package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Observers of a lock, and elections. */
final class ObserveTest {
    private static TestServer server;
    private static DLockClient client;

    private final List<Optional<Holder>> seen = Collections.synchronizedList(new ArrayList<>());

    @BeforeAll
    static void start() {
        server = TestServer.start();
        client = TestServer.patient().url(server.url()).lease(Lease.renewed(Duration.ofSeconds(4))).connect();
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    private List<String> owners() {
        return List.copyOf(seen).stream().map(each -> each.map(Holder::owner).orElse("")).collect(Collectors.toList());
    }

    private void untilSeen(String... owners) {
        soon("seen " + List.of(owners), () -> owners().equals(List.of(owners)));
    }

    @Test
    void an_observer_sees_each_change_of_the_holder() {
        try (Watcher watcher = client.watch("watched", seen::add)) {
            untilSeen("");
            long token = (long) server.run("DLOCK.ACQUIRE", "watched", "a", "PX", 60_000);
            untilSeen("", "a");
            Holder holder = client.holder("watched").orElseThrow();
            assertEquals(holder, seen.get(1).orElseThrow());
            assertEquals(token, holder.fencingToken());
            assertEquals(0, Duration.between(holder.since(), Instant.now()).toMinutes());
            server.run("DLOCK.RENEW", "watched", "a", "PX", 50_000);
            server.run("DLOCK.RELEASE", "watched", "a");
            untilSeen("", "a", "");
            server.run("DLOCK.ACQUIRE", "watched", "b", "PX", 1500);
            untilSeen("", "a", "", "b", "");
            server.run("DLOCK.ACQUIRE", "watched", "c", "PX", 60_000);
            untilSeen("", "a", "", "b", "", "c");
            server.run("DEL", "watched");
            untilSeen("", "a", "", "b", "", "c", "");
            assertEquals(Optional.empty(), client.holder("watched"));
        }
        // The closed observer reports nothing, although another one has seen the next holder.
        List<Optional<Holder>> seenByOther = Collections.synchronizedList(new ArrayList<>());
        try (Watcher other = client.watch("watched", seenByOther::add)) {
            soon("the other one begins", () -> seenByOther.size() == 1);
            server.run("DLOCK.ACQUIRE", "watched", "d", "PX", 60_000);
            soon("the other one sees d", () -> seenByOther.size() == 2);
        }
        assertEquals(7, seen.size());
    }

    @Test
    void an_observer_outlives_its_connection_and_the_server() {
        try (TestServer mortal = TestServer.start();
                DLockClient its = mortal.client();
                Watcher watcher = its.watch("mortal", seen::add)) {
            untilSeen("");
            mortal.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            mortal.run("DLOCK.ACQUIRE", "mortal", "a", "PX", 60_000);
            untilSeen("", "a");
            mortal.kill();
            mortal.launch();
            mortal.run("DLOCK.ACQUIRE", "mortal", "b", "PX", 60_000);
            soon("b is seen", () -> owners().get(owners().size() - 1).equals("b"));
        }
    }

    @Test
    void one_program_leads_at_a_time() {
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        List<Long> tokens = Collections.synchronizedList(new ArrayList<>());
        List<Election> elections = new ArrayList<>();
        for (String name : List.of("a", "b")) {
            elections.add(client.elect("leader", term -> {
                events.add("started " + name);
                tokens.add(term.fencingToken());
            }, term -> events.add("stopped " + name)));
            soon("a leads", () -> events.size() == 1);
        }
        assertTrue(elections.get(0).isLeader());
        assertEquals(tokens.get(0), elections.get(1).leader().orElseThrow().fencingToken());
        server.untilWaiting("leader", 1);
        elections.get(0).close();
        soon("b leads", () -> events.size() == 3);
        assertEquals(List.of("started a", "stopped a", "started b"), events);
        // A term that is lost ends, and the next one begins.
        server.run("DEL", "leader");
        soon("b leads again", () -> events.size() == 5);
        assertEquals(List.of("stopped b", "started b"), events.subList(3, 5));
        assertEquals(tokens.stream().sorted().collect(Collectors.toList()), tokens);
        elections.get(1).close();
        assertTrue(server.isFree("leader"));
        assertEquals("stopped b", events.get(5));
    }

    /** The options of the lock that the election gets apply to each term. */
    @Test
    void each_term_has_the_options_of_its_lock() {
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        DLock lock = client.lock("termed").withMaxHold(Duration.ofMillis(500));
        try (Election ended = client.elect(lock, term -> events.add("started"), term -> events.add("stopped"))) {
            soon("a second term begins", () -> events.size() >= 3);
        }
        assertEquals(List.of("started", "stopped", "started"), events.subList(0, 3));
    }

    @Test
    void a_leader_may_resign_in_its_listener() {
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        CompletableFuture<Election> election = new CompletableFuture<>();
        election.complete(client.elect("resigns", term -> {
            election.join().close();
            events.add(server.isFree("resigns") ? "free" : "held");
        }, term -> events.add("stopped")));
        soon("the lock is released", () -> events.size() == 2 && server.isFree("resigns"));
        assertEquals(List.of("held", "stopped"), events);
    }

    @Test
    void a_second_close_waits_for_the_end_of_the_term_too() {
        CompletableFuture<Void> isStopping = new CompletableFuture<>();
        CompletableFuture<Void> mayReturn = new CompletableFuture<>();
        CompletableFuture<Void> leads = new CompletableFuture<>();
        Election election = client.elect("closed twice", term -> leads.complete(null), term -> {
            isStopping.complete(null);
            mayReturn.join();
        });
        leads.join();
        CompletableFuture<Void> first = CompletableFuture.runAsync(election::close, task -> new Thread(task).start());
        isStopping.join();
        CompletableFuture<Void> second = CompletableFuture.runAsync(election::close, task -> new Thread(task).start());
        assertThrows(TimeoutException.class, () -> second.get(300, TimeUnit.MILLISECONDS));
        assertFalse(server.isFree("closed twice"));
        mayReturn.complete(null);
        second.join();
        assertTrue(server.isFree("closed twice"));
        first.join();
    }

    @Test
    void a_closed_client_refuses_an_election() {
        DLockClient closed = server.client();
        closed.close();
        assertThrows(IllegalStateException.class, () -> closed.elect("too late", term -> {}, term -> {}));
    }

    /** Other threads ask meanwhile whether the program leads, so that the election is closed between two questions. */
    @Test
    void a_term_that_ends_as_it_begins_keeps_its_lock_until_the_listener_has_returned() {
        for (int i = 0; i < 150; i++) {
            String name = "soon:" + i;
            CompletableFuture<Election> election = new CompletableFuture<>();
            CompletableFuture<Boolean> keeps = new CompletableFuture<>();
            election.complete(client.elect(client.lock(name).withLease(Lease.renewed(Duration.ofMinutes(1))),
                    term -> election.thenAcceptAsync(Election::close),
                    term -> keeps.complete(!server.isFree(name))));
            List<CompletableFuture<Void>> asking = Stream.generate(() -> election.thenAcceptAsync(each -> {
                while (!keeps.isDone()) {
                    each.isLeader();
                }
            }, task -> new Thread(task).start())).limit(3).collect(Collectors.toList());
            assertTrue(keeps.orTimeout(20, TimeUnit.SECONDS).join(), "round " + i);
            asking.forEach(CompletableFuture::join);
        }
    }

    @Test
    void a_driver_reports_no_changes() {
        try (DLockClient driven = TestServer.patient().driver(words -> null).connect()) {
            assertThrows(IllegalArgumentException.class, () -> driven.watch("name", seen::add));
        }
    }
}
