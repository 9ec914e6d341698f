package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Plays the histories of all packages, {@code tests/clients/histories}, without a server and a clock. */
final class HistoriesTest {
    @Test
    void every_history_is_as_it_says() throws IOException {
        Path folder = Path.of(TestServer.env("DLOCK_SHARED"), "histories");
        List<String> wrong = new ArrayList<>();
        int played = 0;
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.filter(each -> each.toString().endsWith(".txt")).sorted().collect(Collectors.toList())) {
                played += play(file, Files.readAllLines(file), wrong);
            }
        }
        System.out.println("histories: " + played);
        assertTrue(played > 1000, played + " were played");
        assertEquals("", String.join("\n", wrong.subList(0, Math.min(12, wrong.size()))), wrong.size() + " are wrong");
    }

    @Test
    void an_error_to_a_copy_of_an_earlier_request_does_not_end_the_acquisition() {
        Attempt attempt = new Attempt(Limits.none(30_000, 0), nanos(3000));
        attempt.begin();
        attempt.sends(1, 0);
        attempt.cut(nanos(1500));
        attempt.sends(2, nanos(1500));
        assertEquals(Attempt.Step.CONFIRM, attempt.granted(2, nanos(1600)).step);
        attempt.sends(3, nanos(1600));
        assertTrue(attempt.gone(3, nanos(1700)).isFresh);
        attempt.sends(4, nanos(1700));
        assertNull(attempt.failed(1));
        assertEquals(Attempt.Step.FAILED, attempt.failed(4).step);
    }

    @Test
    void a_fresh_grant_that_a_cap_may_have_cut_is_confirmed_before_it_counts() {
        for (boolean isAnswered : new boolean[] {true, false}) {
            Attempt attempt = new Attempt(Limits.none(30_000, 0), nanos(3000), true);
            attempt.begin();
            attempt.sends(1, 0);
            assertEquals(Attempt.Step.CONFIRM, attempt.granted(1, nanos(10)).step);
            attempt.sends(2, nanos(10));
            Attempt.Action end = isAnswered
                    ? attempt.capped(2, nanos(500), nanos(20))
                    : attempt.over(nanos(20));
            assertEquals(isAnswered ? Attempt.Step.GRANTED : Attempt.Step.UNREACHABLE, end.step);
            assertEquals(isAnswered ? Attempt.Cleanup.NONE : Attempt.Cleanup.RELEASE, end.cleanup);
            assertTrue(!isAnswered || end.until == nanos(500));
        }
    }

    private static int play(Path file, List<String> lines, List<String> wrong) {
        int played = 0;
        String history = "";
        Player player = null;
        for (int number = 1; number <= lines.size(); number++) {
            String line = lines.get(number - 1).trim();
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            if (line.startsWith("history ")) {
                history = line.substring("history ".length());
                player = null;
                played++;
                continue;
            }
            String[] parts = line.split("\\s*:\\s*", 2);
            String[] event = parts[0].split("\\s+");
            long now = Long.parseLong(event[0]);
            if (player == null) {
                player = event[1].equals("granted") ? new OfValidity() : new OfAttempt();
            }
            String answer = player.event(now, event);
            for (String expected : parts.length < 2 ? new String[0] : parts[1].split(",\\s*")) {
                if (!List.of(answer.split(", ")).contains(expected.trim())) {
                    wrong.add(file.getFileName() + ":" + number + " " + history + ": " + line + " <- " + answer);
                }
            }
        }
        return played;
    }

    private static long nanos(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }

    private static long millis(long nanos) {
        return Math.floorDiv(nanos, 1_000_000L);
    }

    /** Returns the value of {@code name=VALUE} in an event. */
    private static String option(String[] event, String name, String otherwise) {
        for (String word : event) {
            if (word.startsWith(name + "=")) {
                return word.substring(name.length() + 1);
            }
        }
        return otherwise;
    }

    private static long time(String[] event, String name) {
        return nanos(Long.parseLong(option(event, name, null)));
    }

    private interface Player {
        String event(long now, String[] event);
    }

    private static final class OfValidity implements Player {
        private Heartbeat beat;

        @Override
        public String event(long millis, String[] event) {
            long now = nanos(millis);
            int number = event.length > 2 && event[2].matches("\\d+") ? Integer.parseInt(event[2]) : 0;
            switch (event[1]) {
                case "granted":
                    long lease = time(event, "lease");
                    long sent = time(event, "sent");
                    boolean isOpen = List.of(event).contains("open");
                    beat = new Heartbeat(new Validity(lease, sent, isOpen, now), lease, sent, true, now);
                    break;
                case "sent":
                    beat.sends(number, time(event, "lease"), now);
                    break;
                case "ok":
                    beat.ok(number, now);
                    break;
                case "cut":
                    beat.cut(now);
                    break;
                case "refused":
                    beat.refused(number, now);
                    break;
                case "capped":
                    beat.capped(number, now);
                    break;
                case "asked":
                    beat.asks(number, now);
                    break;
                case "left":
                    beat.left(number, nanos(Long.parseLong(event[3])), now);
                    break;
                case "nil":
                    beat.validity().gone();
                    break;
                case "release":
                    beat.validity().release(now);
                    break;
                default:
                    assertEquals("now", event[1]);
            }
            return said(now);
        }

        private String said(long now) {
            beat.validity().passes(now);
            String next = beat.next() == Heartbeat.Next.CHECK ? "check"
                    : beat.next() == Heartbeat.Next.NOTHING ? "nothing"
                    : (beat.next() == Heartbeat.Next.RENEW ? "renew " : "again ") + millis(beat.at());
            return (beat.validity().isReleased() ? "released" : beat.validity().isLost() ? "lost" : "held")
                    + ", until " + millis(beat.validity().until()) + ", " + next;
        }
    }

    private static final class OfAttempt implements Player {
        private final Map<Integer, Long> sent = new HashMap<>();
        private Attempt attempt;
        private String last = "";

        @Override
        public String event(long millis, String[] event) {
            long now = nanos(millis);
            int number = event.length > 2 && event[2].matches("\\d+") ? Integer.parseInt(event[2]) : 0;
            switch (event[1]) {
                case "acquire":
                    String limit = option(event, "limit", "none");
                    long outage = Long.parseLong(option(event, "outage", "30000"));
                    Limits limits = limit.equals("none") ? Limits.none(outage, now)
                            : Limits.of(limit.equals("try") ? 0 : nanos(Long.parseLong(limit)), outage,
                                    Limits.TRY_MILLIS, now);
                    attempt = new Attempt(limits, time(event, "lease"));
                    return said(attempt.begin());
                case "sent":
                    attempt.sends(number, now);
                    sent.put(number, now);
                    return last;
                case "granted":
                    return said(attempt.granted(number, now));
                case "nil":
                    return said(attempt.nil(number, now));
                case "ok":
                    return said(attempt.ok(number, now));
                case "left":
                    long end = sent.get(number) + nanos(Long.parseLong(event[3])) - Validity.GRAIN;
                    return said(attempt.capped(number, end, now));
                case "gone":
                    return said(attempt.gone(number, now));
                case "cut":
                    return said(attempt.cut(now));
                case "refused":
                    return said(attempt.refused(number, now));
                case "error":
                    return said(attempt.failed(number));
                case "over":
                    return said(attempt.over(now));
                default:
                    assertEquals("cancel", event[1]);
                    return said(attempt.canceled());
            }
        }

        private String said(Attempt.Action action) {
            last = action == null ? last : text(action);
            return last;
        }

        private static String text(Attempt.Action action) {
            String fresh = action.isFresh ? "fresh " : "";
            switch (action.step) {
                case TRY:
                    return fresh + "try";
                case WAIT:
                    return fresh + "wait " + action.block;
                case CONFIRM:
                    return "confirm";
                case GRANTED:
                    return "granted until " + millis(action.until);
                default:
                    return (action.step + " cleanup " + action.cleanup).toLowerCase(Locale.ROOT);
            }
        }
    }
}
