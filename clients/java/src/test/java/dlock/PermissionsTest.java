package dlock;

import static dlock.TestServer.elsewhere;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The permissions that docs/permissions.md tells to grant are enough. */
final class PermissionsTest {
    private static final Duration LONG = Duration.ofSeconds(20);

    private static TestServer server;
    private static TestServer replica;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
        replica = TestServer.start("--replicaof", "127.0.0.1 " + server.port);
        soon("the replica acknowledges", () -> {
            server.run("SET", "x", "1");
            return (long) server.run("WAIT", 1, 1000) == 1;
        });
        String page = Files.readString(Path.of("docs/permissions.md"));
        List<String> locker = rules(found(page, "> ACL SETUSER worker (.*)", 1));
        locker.addAll(rules(found(page, "(?m)^\\| Java \\| (.*) \\| .* \\|$", 1)));
        // The page says this below the table.
        locker.add("+wait");
        List<String> watcher = new ArrayList<>(locker);
        watcher.addAll(rules(found(page, "(?m)^\\| Java \\| .* \\| (.*) \\|$", 1)));
        user("locker", locker);
        user("watcher", watcher);
    }

    @AfterAll
    static void stop() {
        server.close();
        replica.close();
    }

    private static String found(String page, String pattern, int group) {
        Matcher matcher = Pattern.compile(pattern).matcher(page);
        List<String> all = matcher.results().map(each -> each.group(group)).collect(Collectors.toList());
        assertFalse(all.isEmpty(), pattern);
        return String.join(" ", all);
    }

    /** Returns the words of a text that begin like a rule. */
    private static List<String> rules(String text) {
        return Pattern.compile("[ `]").splitAsStream(text).filter(word -> word.matches("[+&].*"))
                .map(word -> word.replace("\\|", "|")).collect(Collectors.toCollection(ArrayList::new));
    }

    private static void user(String name, List<String> rules) {
        List<Object> words = new ArrayList<>(List.of("ACL", "SETUSER", name, "reset", "on", ">secret", "~job:*"));
        words.addAll(rules);
        server.run(words.toArray());
    }

    private static DLockClient client(String user) {
        return TestServer.patient().url(server.url()).credentials(user, "secret").connect();
    }

    /** The commands that were refused to the users. */
    private static List<String> denied() {
        List<String> denied = new ArrayList<>();
        for (Object entry : (List<?>) server.run("ACL", "LOG")) {
            denied.add((String) TestServer.map(entry).get("object"));
        }
        return denied;
    }

    @Test
    void a_user_of_the_page_locks_and_watches() throws Exception {
        try (DLockClient client = client("locker")) {
            for (Lease lease : List.of(Lease.renewed(LONG), Lease.fixed(LONG), Lease.session(LONG))) {
                DLock lock = client.lock("job:1").withLease(lease);
                lock.lock();
                CompletableFuture<Hold> waiting = lock.acquireAsync();
                server.untilWaiting("job:1", 1);
                assertFalse(elsewhere(() -> lock.tryLock()));
                lock.unlock();
                Hold hold = waiting.get(20, TimeUnit.SECONDS);
                hold.extend(LONG);
                hold.release();
                DReadWriteLock both = client.readWriteLock("job:2").withLease(lease);
                both.readLock().lock();
                both.writeLock().lock();
                both.writeLock().unlock();
                both.readLock().unlock();
                client.semaphore("job:3", 2).withLease(lease).acquireAsync(1).get(20, TimeUnit.SECONDS).release();
                client.lock("job:4", "job:5").withLease(lease).acquire().release();
                client.lock("job:6").withLease(lease).withReplicas(1, LONG).acquire().release();
            }
            assertEquals(Optional.empty(), client.holder("job:1"));
        }
        List<Optional<Holder>> seen = Collections.synchronizedList(new ArrayList<>());
        try (DLockClient client = client("watcher"); Watcher watcher = client.watch("job:1", seen::add)) {
            soon("it is free", () -> seen.size() == 1);
            Hold hold = client.lock("job:1").acquire();
            soon("it is held", () -> seen.size() == 2);
            assertEquals(hold.fencingToken(), seen.get(1).orElseThrow().fencingToken());
            hold.release();
            soon("it is free again", () -> seen.size() == 3);
        }
        assertEquals(List.of(), denied());
        // The other user lacks what it takes to watch.
        try (DLockClient client = client("locker"); Watcher watcher = client.watch("job:1", seen::add)) {
            soon("it is refused", () -> denied().contains("client|tracking"));
        }
        assertTrue(seen.size() == 3);
    }
}
