package dlock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The words of commands and replies. */
final class Words {
    private Words() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Words of strings, numbers and bytes. */
    static List<byte[]> of(Object... words) {
        List<byte[]> all = new ArrayList<>(words.length);
        for (Object word : words) {
            all.add(word instanceof byte[] ? (byte[]) word : bytes(word.toString()));
        }
        return all;
    }

    static byte[][] command(Object... words) {
        return of(words).toArray(new byte[0][]);
    }

    /** What a reply says, as text. */
    static String text(Object value) {
        return value instanceof byte[] ? new String((byte[]) value, StandardCharsets.UTF_8) : String.valueOf(value);
    }

    /** A reply that is an integer, or nil. Some clients make a string of it. */
    static Long number(Object value) {
        if (value == null) {
            return null;
        }
        return value instanceof Number ? ((Number) value).longValue() : Long.valueOf(text(value));
    }
}
