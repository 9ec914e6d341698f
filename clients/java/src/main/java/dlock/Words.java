package dlock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Conversions of the arguments of commands, and of replies. */
final class Words {
    private Words() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Returns strings, numbers and bytes as arguments. */
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

    /** Returns a reply as text. */
    static String text(Object value) {
        return value instanceof byte[] ? new String((byte[]) value, StandardCharsets.UTF_8) : String.valueOf(value);
    }

    /** Returns the token in the reply to an acquiring command, or {@code null}. With {@code SLOT} it is the first of two. */
    static Long token(Object reply) {
        return number(reply instanceof List ? ((List<?>) reply).get(0) : reply);
    }

    /** Returns the number of the permit in the reply to an acquiring command with {@code SLOT}, or {@code null}. */
    static Long slot(Object reply) {
        return reply instanceof List ? number(((List<?>) reply).get(1)) : null;
    }

    /** Returns a reply that is an integer or nil. Some clients return integers as strings. */
    static Long number(Object value) {
        if (value == null) {
            return null;
        }
        return value instanceof Number ? ((Number) value).longValue() : Long.valueOf(text(value));
    }
}
