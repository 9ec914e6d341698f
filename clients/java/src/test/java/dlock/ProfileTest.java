package dlock;

import static dlock.TestServer.refused;
import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Every connection of a client uses the same database, and logs in with the present user and password. */
final class ProfileTest {
    @Test
    void a_greeting_logs_in_names_the_client_and_selects_the_database() {
        Profile.Greeting greeting = new Profile("app", "secret", 6, "name", null).greeting();
        assertArrayEquals(Words.command("HELLO", "3", "AUTH", "app", "secret", "SETNAME", "name"), greeting.hello);
        assertArrayEquals(Words.command("SELECT", 6), greeting.select);
        assertArrayEquals(Words.command("HELLO", "3", "SETNAME", "name"),
                new Profile("app", (String) null, 0, "name", null).greeting().hello);
        assertNull(new Profile(null, "secret", 0, "name", null).greeting().select);
    }

    @Test
    @Tag("server")
    void locks_of_every_kind_are_in_the_database_of_the_url() throws Exception {
        try (TestServer server = TestServer.start();
                DLockClient client = TestServer.connected(server.url() + "?db=6")) {
            Hold hold = client.lock("job").acquire();
            refused(() -> client.lock("job").tryAcquire(Duration.ofMillis(200)));
            Session session = client.openSession(Duration.ofSeconds(3));
            client.lock("other").withLease(Lease.of(session)).acquire();
            client.lock("third").withLease(Lease.session(Duration.ofSeconds(3))).acquire();
            server.run("SELECT", 6);
            for (String name : new String[] {"job", "other", "third"}) {
                assertFalse(server.isFree(name), name);
            }
            server.run("SELECT", 0);
            assertTrue(server.isFree("job") && server.isFree("other") && server.isFree("third"));
            hold.release();
        }
    }

    @Test
    @Tag("server")
    void a_password_that_was_changed_is_used_by_the_next_wait() throws Exception {
        try (TestServer server = TestServer.start()) {
            server.run("ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all");
            AtomicReference<String> password = new AtomicReference<>("one");
            try (DLockClient client = TestServer.patient().url(server.url())
                    .credentials("app", password::get).connect()) {
                Hold hold = client.lock("job").acquire();
                // A connection that was used for a wait is kept for the next one.
                refused(() -> client.lock("job").tryAcquire(Duration.ofMillis(200)));
                long before = connections(server);
                server.run("ACL", "SETUSER", "app", "resetpass", ">two");
                password.set("two");
                CompletableFuture<Hold> waiting = client.lock("job").acquireAsync();
                server.untilWaiting("job", 1);
                soon("the connection with the old password is closed", () -> connections(server) <= before);
                hold.release();
                waiting.get(20, TimeUnit.SECONDS).release();
                assertEquals("app", userOfWaiter(client, server));
            }
        }
    }

    private static long connections(TestServer server) {
        return text(server).lines().filter(line -> line.contains("user=app")).count();
    }

    private static String userOfWaiter(DLockClient client, TestServer server) throws Exception {
        Hold hold = client.lock("user").acquire();
        CompletableFuture<Hold> waiting = client.lock("user").acquireAsync();
        server.untilWaiting("user", 1);
        String id = "id=" + server.each("user", "queue", "client").get(0) + " ";
        String line = text(server).lines().filter(each -> each.startsWith(id)).findFirst().orElseThrow();
        hold.release();
        waiting.get(20, TimeUnit.SECONDS).release();
        return line.replaceAll(".* user=(\\S+).*", "$1");
    }

    private static String text(TestServer server) {
        return new String((byte[]) server.run("CLIENT", "LIST"), StandardCharsets.UTF_8);
    }
}
