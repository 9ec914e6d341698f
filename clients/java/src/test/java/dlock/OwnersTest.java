package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Owners say where a lock is held. */
final class OwnersTest {
    @Test
    void a_label_is_what_the_user_chose_or_the_host_and_the_process() {
        String[][] hosts = {
            {"web-1", "web-1:77"}, {"", "host:77"}, {"Büro 7", "B-ro-7:77"},
            {"a-name.that-is-longer.than-what-is-shown.example", "a-name.that-is-longer.than-what-i:77"},
        };
        for (String[] row : hosts) {
            assertEquals(row[1], Owners.labelOf(row[0], 77));
        }
        assertEquals("web-1:77:12:00000000000000ff", new Owners("web-1:77", 255).name(12));
        String longest = new Owners(Owners.labelOf("x".repeat(99), Long.MAX_VALUE), -1).name(9_999_999_999L);
        assertEquals(64, longest.length());
        for (String label : new String[] {"", "a b", "a\nb", "é".repeat(19), "x".repeat(37)}) {
            assertThrows(IllegalArgumentException.class, () -> DLockClient.builder().owner(label), label);
        }
    }

    @Test
    @Tag("server")
    void a_label_of_the_user_is_shown() throws Exception {
        try (TestServer server = TestServer.start();
                DLockClient client = TestServer.patient().url(server.url()).owner("billing-é").connect()) {
            try (Hold hold = client.lock("job").acquire()) {
                assertTrue(((String) server.each("job", "holds", "owner").get(0)).startsWith("billing-é:1:"));
            }
        }
    }

    @Test
    @Tag("server")
    void an_owner_names_the_host_and_the_process() throws Exception {
        try (TestServer server = TestServer.start(); DLockClient client = server.client();
                DLockClient other = server.client()) {
            Set<String> owners = new HashSet<>();
            for (DLockClient each : new DLockClient[] {client, other}) {
                for (int i = 0; i < 20; i++) {
                    try (Hold hold = each.lock("job").acquire()) {
                        String owner = hold.owner();
                        assertEquals(owner, server.each("job", "holds", "owner").get(0));
                        assertTrue(owner.matches("[A-Za-z0-9._-]+:" + ProcessHandle.current().pid() + ":\\d+:[0-9a-f]{16}"),
                                owner);
                        assertTrue(owner.getBytes(StandardCharsets.UTF_8).length <= 64, owner);
                        assertTrue(owners.add(owner), owner);
                    }
                }
            }
            DLock lock = client.lock("job");
            lock.lock();
            assertTrue(lock.hold().owner().contains(":" + ProcessHandle.current().pid() + ":"));
            lock.unlock();
        }
    }
}
