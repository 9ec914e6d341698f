package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The table of replies: what an error of a server means for an acquisition. Without a server. */
final class RepliesTest {
    private static final Pattern ROW = Pattern.compile("\"(.*)\" => (.*)");

    /** Returns the meaning, as far as the package tells it apart here. */
    private static String meaning(ServerException error) {
        if (Unanswered.mayRepeat(error)) {
            return Unanswered.mayBeExecuted(error) ? "open" : "elsewhere";
        }
        return Unanswered.writesNothing(error) ? "paused" : "other";
    }

    @Test
    void an_error_of_a_server_means_what_the_table_says() throws IOException {
        int rows = 0;
        for (String line : Files.readAllLines(Path.of(TestServer.env("DLOCK_SHARED"), "tables", "replies.txt"))) {
            Matcher row = ROW.matcher(line);
            if (row.matches()) {
                rows++;
                String told = List.of("elsewhere", "open", "paused").contains(row.group(2)) ? row.group(2) : "other";
                assertEquals(told, meaning(ServerException.of(row.group(1), null)), line);
            }
        }
        assertTrue(rows > 20);
    }
}
