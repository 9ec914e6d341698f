package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

/** URLs, slots, deadlines: what needs no server. */
final class AddressesTest {
    @Test
    void a_url_names_servers() {
        ServerUrl url = ServerUrl.parse("redis://host");
        assertEquals("[host:6379]", url.addresses.toString());
        assertNull(url.primary);
        assertNull(url.user);
        assertNull(url.password);

        url = ServerUrl.parse("valkeys://al%40ice:p%3A%2F+@a:7000,[::1]:7001,b/3");
        assertTrue(url.tls);
        assertEquals("[a:7000, [::1]:7001, b:6379]", url.addresses.toString());
        assertEquals("al@ice", url.user);
        assertEquals("p:/+", url.password);
        assertEquals(3, url.database);

        url = ServerUrl.parse("redis-sentinel://:secret@a,b:26380/main/2");
        assertEquals("[a:26379, b:26380]", url.addresses.toString());
        assertEquals("main", url.primary);
        assertNull(url.user);
        assertEquals("secret", url.password);
        assertEquals(2, url.database);
        assertTrue(ServerUrl.parse("rediss-sentinel://a/main").tls);
    }

    @Test
    void what_is_no_url_is_refused() {
        for (String url : new String[] {"host", "http://host", "redis://", "redis://host:x", "redis://host:0",
            "redis://host:65536", "redis://host/x", "redis://host/-1", "redis-sentinel://host", "redis://a,,b",
            "unix:///socket"}) {
            assertThrows(IllegalArgumentException.class, () -> ServerUrl.parse(url), url);
        }
    }

    @Test
    void slots_are_those_of_the_server() {
        // From the specification of Redis Cluster.
        assertEquals(0x31C3, Servers.slot("123456789"));
        assertEquals(Servers.slot("user1000"), Servers.slot("{user1000}.following"));
        assertEquals(Servers.slot("{bar"), Servers.slot("foo{{bar}}zap"));
        assertEquals(Servers.slot("bar"), Servers.slot("foo{bar}{zap}"));
        assertTrue(Servers.slot("foo{}{bar}") != Servers.slot("bar"));
    }

    @Test
    void a_deadline_becomes_what_block_is_given() {
        assertEquals(0, Deadline.NEVER.block());
        assertEquals(DedicatedConnection.NOT_AT_ALL, Deadline.afterMillis(0).block());
        assertEquals(DedicatedConnection.NOT_AT_ALL, Deadline.afterNanos(-1).block());
        long block = Deadline.afterMillis(1000).block();
        assertTrue(block > 0 && block <= 1000, "" + block);
        assertTrue(Limit.of(Duration.ofSeconds(Long.MAX_VALUE), Limit.none(1000)).end.isNever());
        assertTrue(Limit.of(Duration.ofSeconds(Long.MIN_VALUE), Limit.none(1000)).end.hasPassed());
        assertTrue(Limit.none(Long.MAX_VALUE).giveUp().isNever());
        assertTrue(Deadline.afterNanos(Long.MAX_VALUE).isNever());
        assertTrue(Deadline.afterNanos(1_000_000_000).leftMillis() <= 1000);
    }

    @Test
    void pauses_between_repeats_grow_to_half_a_second_and_shrink_before_the_end() {
        assertEquals(0, Core.pauseMillis(0));
        assertEquals(25, Core.pauseMillis(1));
        assertEquals(50, Core.pauseMillis(2));
        assertEquals(500, Core.pauseMillis(1000));
        assertEquals(500, Core.pauseMillis(1000, Deadline.NEVER));
        long pause = Core.pauseMillis(1000, Deadline.afterMillis(400));
        assertTrue(pause > 25 && pause <= 100, "" + pause);
        assertEquals(25, Core.pauseMillis(1000, Deadline.afterMillis(0)));
        assertEquals(0, Core.pauseMillis(0, Deadline.afterMillis(0)));
    }

    @Test
    void codes_of_errors_are_their_first_word() {
        assertEquals("WRONGTYPE", ServerException.codeOf("WRONGTYPE Operation against a key"));
        assertEquals("ERR", ServerException.codeOf("ERR"));
        assertEquals("", ServerException.codeOf("Read timed out"));
        assertEquals("", ServerException.codeOf(""));
        assertEquals("", ServerException.codeOf("A reply"));
    }

    /** Form, then what it means: user, password, addresses, database, TLS, primary; or that it is refused. */
    private static final String[][] URLS = {
        {"redis://host", "null null [host:6379] 0 false null"},
        {"redis://host/", "null null [host:6379] 0 false null"},
        {"redis://host:7000/2", "null null [host:7000] 2 false null"},
        {"redis://host?db=2", "null null [host:6379] 2 false null"},
        {"redis://host:7000/?db=2", "null null [host:7000] 2 false null"},
        {"redis://host/2?db=2", "null null [host:6379] 2 false null"},
        {"REDIS://host", "null null [host:6379] 0 false null"},
        {"Rediss://host", "null null [host:6379] 0 true null"},
        {"VALKEYS-Sentinel://host/main?db=3", "null null [host:26379] 3 true main"},
        {"redis://:p@[::1]:7000", "null p [[::1]:7000] 0 false null"},
        {"redis://u:@host", "u  [host:6379] 0 false null"},
        {"redis://host/1?db=2", null}, {"redis://host?db=2&db=3", null}, {"redis://host?db=", null},
        {"redis://host?db=x", null}, {"redis://host?db=+2", null}, {"redis://host?db=-1", null},
        {"redis://host?database=2", null}, {"redis://host?timeout=3", null}, {"redis://host/2?x=1", null},
        {"redis://host?", null}, {"redis://host#2", null}, {"redis://host/2/3", null}, {"redis://host/+2", null},
        {"redis://host/99999999999", null}, {"redis://host:+6379", null}, {"redis://host:", null},
        {"redis://host ", null}, {" redis://host", null}, {"redis://ho st", null}, {"redis://host\n", null},
        {"redis://user@host", null}, {"redis://host/%32", null}, {"redis://host/%zz", null},
        {"redis://:%zz@host", null}, {"redis-sentinel://host/main/1/2", null}, {"redis-sentinel://host?db=2", null},
        {"unix:///socket?db=3", null}, {"redis+unix:///socket", null}, {"redis://::1", null}, {"", null},
    };

    @Test
    void what_a_url_says_is_understood_or_refused() {
        for (String[] row : URLS) {
            String meant;
            try {
                ServerUrl url = ServerUrl.parse(row[0]);
                meant = url.user + " " + url.password + " " + url.addresses + " " + url.database + " " + url.tls + " "
                        + url.primary;
            } catch (IllegalArgumentException e) {
                meant = null;
            }
            assertEquals(row[1], meant, row[0]);
        }
    }
}
