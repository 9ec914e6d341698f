package dlock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

final class RespTest {
    private static final Object INCOMPLETE = Resp.Decoder.INCOMPLETE;

    @Test
    void a_command_is_an_array_of_strings() {
        byte[] bytes = Resp.encode(Words.command("DLOCK.ACQUIRE", "k\r\n", ""));
        String expected = "*3\r\n$13\r\nDLOCK.ACQUIRE\r\n$3\r\nk\r\n\r\n$0\r\n\r\n";
        assertEquals(expected, new String(bytes, StandardCharsets.UTF_8));
    }

    @Test
    void every_type_is_read() throws Exception {
        String[][] cases = {
            {"+OK\r\n", "OK"},
            {"-ERR no\r\n", "!ERR no"},
            {":-12\r\n", "-12"},
            {"$3\r\na\r\n\r\n", "a\r\n"},
            {"$0\r\n\r\n", ""},
            {"$-1\r\n", "null"},
            {"*-1\r\n", "null"},
            {"_\r\n", "null"},
            {"#t\r\n", "true"},
            {",1.5\r\n", "1.5"},
            {",inf\r\n", "Infinity"},
            {",nan\r\n", "NaN"},
            {"(123456789012345678901234567890\r\n", "123456789012345678901234567890"},
            {"=7\r\ntxt:abc\r\n", "abc"},
            {"!5\r\nERR x\r\n", "!ERR x"},
            {"*0\r\n", "[]"},
            {"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", "[[1], x]"},
            {"%1\r\n+k\r\n:1\r\n", "[k, 1]"},
            {"~2\r\n:1\r\n:2\r\n", "[1, 2]"},
            {"|1\r\n+ttl\r\n:3\r\n:7\r\n", "7"},
            {"*2\r\n:1\r\n|1\r\n+a\r\n*0\r\n:2\r\n", "[1, 2]"},
            {">2\r\n+invalidate\r\n_\r\n", ">[invalidate, null]"},
        };
        for (String[] each : cases) {
            byte[] bytes = each[0].getBytes(StandardCharsets.UTF_8);
            assertEquals(each[1], show(decode(bytes).get(0)), each[0]);
            // Two pieces give the same, wherever the bytes are cut.
            for (int cut = 0; cut < bytes.length; cut++) {
                Resp.Decoder decoder = new Resp.Decoder();
                decoder.feed(ByteBuffer.wrap(bytes, 0, cut));
                assertSame(INCOMPLETE, decoder.next(), each[0] + " cut at " + cut);
                decoder.feed(ByteBuffer.wrap(bytes, cut, bytes.length - cut));
                assertEquals(each[1], show(decoder.next()), each[0] + " cut at " + cut);
                assertSame(INCOMPLETE, decoder.next());
            }
        }
    }

    @Test
    void what_is_no_reply_is_refused() {
        String[] cases = {
            "\r\n", "x\r\n", "\n", "+a\rb\r\n", "+a\nb\r\n", ":\r\n", ":1.5\r\n", ":99999999999999999999\r\n",
            "$-2\r\n", "$1\r\nab\r\n", "$1\r\na\rb", "$99999999999\r\n", "*-2\r\n", "*?\r\n", "%-1\r\n", "~-1\r\n",
            "#x\r\n", "_x\r\n", ",x\r\n", "(x\r\n", "=2\r\nab\r\n", "$67108865\r\n", "*16777217\r\n", ">-1\r\n",
        };
        for (String each : cases) {
            assertThrows(Resp.MalformedReply.class, () -> decode(each.getBytes(StandardCharsets.UTF_8)), each);
        }
        byte[] deep = "*1\r\n".repeat(100).getBytes(StandardCharsets.UTF_8);
        assertThrows(Resp.MalformedReply.class, () -> decode(deep));
        byte[] endless = ("+" + "x".repeat(70_000)).getBytes(StandardCharsets.UTF_8);
        assertThrows(Resp.MalformedReply.class, () -> decode(endless));
    }

    @Test
    void a_length_alone_takes_no_memory() throws Exception {
        List<Resp.Decoder> decoders = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            Resp.Decoder decoder = new Resp.Decoder();
            decoder.feed(ByteBuffer.wrap("*16777216\r\n$67108864\r\n".getBytes(StandardCharsets.UTF_8)));
            assertSame(INCOMPLETE, decoder.next());
            // 2000 of them would take 128 GB.
            decoders.add(decoder);
        }
        assertEquals(2000, decoders.size());
    }

    @Test
    void a_large_reply_in_small_pieces_is_read_as_it_was_written() throws Exception {
        byte[] large = new byte[4 << 20];
        new Random(1).nextBytes(large);
        byte[] bytes = encode(large);
        Resp.Decoder decoder = new Resp.Decoder();
        Object value = INCOMPLETE;
        for (int at = 0; at < bytes.length; at += 512) {
            decoder.feed(ByteBuffer.wrap(bytes, at, Math.min(512, bytes.length - at)));
            value = decoder.next();
        }
        assertArrayEquals(large, (byte[]) value);
        decoder.feed(ByteBuffer.wrap("+OK\r\n".getBytes(StandardCharsets.UTF_8)));
        assertEquals("OK", show(decoder.next()));
    }

    @Test
    void random_values_are_read_as_they_were_written_however_they_are_cut() throws Exception {
        Random random = new Random(2);
        for (int round = 0; round < 3000; round++) {
            List<String> written = new ArrayList<>();
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            for (int i = random.nextInt(4); i >= 0; i--) {
                Object value = value(random, 0);
                written.add(show(value));
                bytes.write(encode(value));
            }
            assertEquals(written, read(bytes.toByteArray(), random), "round " + round);
        }
    }

    @Test
    void any_bytes_give_replies_or_an_error() {
        Random random = new Random(3);
        byte[] alphabet = "+-:$*%~_,#(=!>|0123456789\r\n\r\n\r\nabc".getBytes(StandardCharsets.UTF_8);
        int refused = 0;
        int read = 0;
        for (int round = 0; round < 200_000; round++) {
            byte[] bytes;
            if (round % 2 == 0) {
                bytes = new byte[random.nextInt(60)];
                for (int i = 0; i < bytes.length; i++) {
                    bytes[i] = alphabet[random.nextInt(alphabet.length)];
                }
            } else {
                // A valid reply with some of its bytes changed.
                bytes = encode(value(random, 0));
                for (int i = random.nextInt(3); i >= 0; i--) {
                    bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(256);
                }
            }
            try {
                read += read(bytes, random).size();
            } catch (Resp.MalformedReply e) {
                refused++;
            }
        }
        assertTrue(refused > 10_000 && read > 10_000, refused + " refused, " + read + " read");
    }

    private static List<Object> decode(byte[] bytes) throws Resp.MalformedReply {
        Resp.Decoder decoder = new Resp.Decoder();
        decoder.feed(ByteBuffer.wrap(bytes));
        List<Object> values = new ArrayList<>();
        for (Object value; (value = decoder.next()) != INCOMPLETE; ) {
            values.add(value);
        }
        return values;
    }

    private static List<String> read(byte[] bytes, Random random) throws Resp.MalformedReply {
        Resp.Decoder decoder = new Resp.Decoder();
        List<String> values = new ArrayList<>();
        for (int at = 0; at < bytes.length; ) {
            int count = Math.min(bytes.length - at, 1 + random.nextInt(40));
            decoder.feed(ByteBuffer.wrap(bytes, at, count));
            at += count;
            for (Object value; (value = decoder.next()) != INCOMPLETE; ) {
                values.add(show(value));
            }
        }
        return values;
    }

    private static Object value(Random random, int depth) {
        switch (random.nextInt(depth > 3 ? 4 : 6)) {
            case 0:
                return random.nextLong();
            case 1:
                return null;
            case 2:
                return random.nextBoolean();
            case 3:
                byte[] bytes = new byte[random.nextInt(80)];
                random.nextBytes(bytes);
                return bytes;
            default:
                Object[] items = new Object[random.nextInt(5)];
                for (int i = 0; i < items.length; i++) {
                    items[i] = value(random, depth + 1);
                }
                return Arrays.asList(items);
        }
    }

    private static byte[] encode(Object value) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        if (value == null) {
            out.writeBytes("_\r\n".getBytes(StandardCharsets.UTF_8));
        } else if (value instanceof Long) {
            out.writeBytes((":" + value + "\r\n").getBytes(StandardCharsets.UTF_8));
        } else if (value instanceof Boolean) {
            out.writeBytes(((Boolean) value ? "#t\r\n" : "#f\r\n").getBytes(StandardCharsets.UTF_8));
        } else if (value instanceof byte[]) {
            out.writeBytes(("$" + ((byte[]) value).length + "\r\n").getBytes(StandardCharsets.UTF_8));
            out.writeBytes((byte[]) value);
            out.writeBytes("\r\n".getBytes(StandardCharsets.UTF_8));
        } else {
            out.writeBytes(("*" + ((List<?>) value).size() + "\r\n").getBytes(StandardCharsets.UTF_8));
            ((List<?>) value).forEach(item -> out.writeBytes(encode(item)));
        }
        return out.toByteArray();
    }

    private static String show(Object value) {
        if (value instanceof byte[]) {
            return new String((byte[]) value, StandardCharsets.ISO_8859_1);
        }
        if (value instanceof Resp.ErrorReply) {
            return "!" + value;
        }
        if (value instanceof Resp.Push) {
            return ">" + show(((Resp.Push) value).items);
        }
        if (value instanceof List) {
            List<String> items = new ArrayList<>();
            ((List<?>) value).forEach(item -> items.add(show(item)));
            return items.toString();
        }
        return String.valueOf(value);
    }
}
