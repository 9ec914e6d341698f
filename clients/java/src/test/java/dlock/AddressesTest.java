package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
    void an_error_does_not_tell_the_password() {
        for (String url : new String[] {"redis://u:pa?s3cret@host", "redis://h?password=a&s3cret",
            "redis://u:pa?s3c=ret@h", "redis://u:[s3cret/x@h", "redis://[s3cret/x@h", "redis://u:pa/s3cret@h",
            "redis://u:s3cret", "redis://u:s3cret/1", "redis://u:pa?db=s3cret@h", "redis://u:pa@s3cret@h",
            "redis://u:s3cret%s3@h", "redis-sentinel://u:1/s3cret@h/main", "u:s3cret@redis://h"}) {
            String why = assertThrows(IllegalArgumentException.class, () -> ServerUrl.parse(url), url).toString();
            assertFalse(why.contains("s3"), why);
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
    void a_deadline_becomes_the_milliseconds_of_block() {
        assertEquals(0, Deadline.NEVER.block());
        assertEquals(DedicatedConnection.NOT_AT_ALL, Deadline.afterMillis(0).block());
        assertEquals(DedicatedConnection.NOT_AT_ALL, Deadline.afterNanos(-1).block());
        long block = Deadline.afterMillis(1000).block();
        assertTrue(block > 0 && block <= 1000, "" + block);
        assertTrue(Limits.of(Duration.ofSeconds(Long.MAX_VALUE), 1000, Limits.TRY_MILLIS, 0).end.isNever());
        assertTrue(Limits.of(Duration.ofSeconds(Long.MIN_VALUE), 1000, Limits.TRY_MILLIS, 0).end.hasPassed(0));
        assertTrue(Limits.none(Long.MAX_VALUE, 0).giveUp().isNever());
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

    /** Reads the table that all packages share. This package refuses the URL of a socket. */
    @Test
    void what_a_url_says_is_understood_or_refused() throws IOException {
        int rows = 0;
        for (String row : Files.readAllLines(Path.of(TestServer.env("DLOCK_SHARED"), "tables", "urls.txt"))) {
            if (row.isEmpty() || row.startsWith("#")) {
                continue;
            }
            Matcher parts = Pattern.compile("(\\w+) \"(.*)\" => (.*)").matcher(row);
            assertTrue(parts.matches(), row);
            String url = parts.group(2).replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
            assertEquals(parts.group(1).equals("socket") ? "refused" : parts.group(3), meant(url), row);
            rows++;
        }
        assertTrue(rows > 100, rows + " rows");
    }

    private static String meant(String text) {
        try {
            ServerUrl url = ServerUrl.parse(text);
            List<String> words = new ArrayList<>();
            url.addresses.forEach(address -> words.add(address.toString()));
            words.add(url.primary == null ? "" : "primary=" + url.primary);
            words.add(url.tls ? "tls" : "");
            words.add(url.user == null ? "" : "user=" + url.user);
            words.add(url.password == null ? "" : "password=" + url.password);
            words.add("db=" + url.database);
            words.removeIf(String::isEmpty);
            return String.join(" ", words);
        } catch (IllegalArgumentException e) {
            return "refused";
        }
    }
}
