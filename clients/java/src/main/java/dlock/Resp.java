package dlock;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The protocol of Redis, version 3, of which version 2 is a subset.
 *
 * <p>A reply becomes a {@code Long}, {@code byte[]} (all kinds of strings), {@code null}, {@code Boolean},
 * {@code Double}, {@code BigInteger}, {@code List} (arrays and sets; a map is the flat list of its keys and values, as
 * in version 2) or {@link ErrorReply}. Attributes are skipped.
 */
final class Resp {
    private Resp() {}

    /** An error reply. It can be an element of an array, so it is data and not an exception. */
    static final class ErrorReply {
        final String message;

        ErrorReply(String message) {
            this.message = message;
        }

        @Override
        public String toString() {
            return message;
        }
    }

    /** A message that is not a reply to a command. */
    static final class Push {
        final List<Object> items;

        Push(List<Object> items) {
            this.items = items;
        }
    }

    /** The bytes are not a reply. The connection is unusable. */
    static final class MalformedReply extends IOException {
        private static final long serialVersionUID = 1;

        MalformedReply(String why) {
            super("malformed reply: " + why);
        }
    }

    static byte[] encode(byte[]... command) {
        int size = 16;
        for (byte[] word : command) {
            size += word.length + 16;
        }
        ByteBuffer out = ByteBuffer.allocate(size);
        header(out, '*', command.length);
        for (byte[] word : command) {
            header(out, '$', word.length);
            out.put(word).put((byte) '\r').put((byte) '\n');
        }
        return Arrays.copyOf(out.array(), out.position());
    }

    private static void header(ByteBuffer out, char type, int length) {
        out.put((byte) type).put(Integer.toString(length).getBytes(StandardCharsets.US_ASCII));
        out.put((byte) '\r').put((byte) '\n');
    }

    /** Decodes a stream of bytes in pieces of any size. Any input gives replies or a {@link MalformedReply}. */
    static final class Decoder {
        /** The result of {@link #next} while a reply is incomplete. */
        static final Object INCOMPLETE = new Object();

        static final int MAX_BULK = 64 << 20;
        static final int MAX_LINE = 64 << 10;
        static final int MAX_ITEMS = 1 << 24;
        static final int MAX_DEPTH = 32;

        private static final Object NOTHING = new Object();
        private static final int ROOMY = 64 << 10;

        private final ArrayDeque<Frame> open = new ArrayDeque<>();
        private byte[] buffer = new byte[512];
        private int start;
        private int end;
        /** The place up to which the line at {@code start} was searched for its end. */
        private int scanned;
        /** The type and length of the bulk whose header has been read; length -1: none. */
        private char bulkType;
        private int bulkLength = -1;

        void feed(ByteBuffer bytes) {
            int more = bytes.remaining();
            if (buffer.length - end < more) {
                int kept = end - start;
                int needed = kept + more;
                // A large reply does not leave a large buffer behind.
                boolean fits = needed <= buffer.length && (buffer.length <= ROOMY || needed > ROOMY);
                byte[] target = fits ? buffer : new byte[Math.max(512, 2 * needed)];
                System.arraycopy(buffer, start, target, 0, kept);
                buffer = target;
                scanned -= start;
                start = 0;
                end = kept;
            }
            bytes.get(buffer, end, more);
            end += more;
        }

        /** Returns the next reply, or {@link #INCOMPLETE}. */
        Object next() throws MalformedReply {
            for (;;) {
                Object value = element();
                if (value == INCOMPLETE) {
                    return INCOMPLETE;
                }
                while (value != NOTHING) {
                    Frame frame = open.peek();
                    if (frame == null) {
                        return value;
                    }
                    frame.items.add(value);
                    if (frame.items.size() < frame.size) {
                        break;
                    }
                    open.pop();
                    value = frame.value();
                }
            }
        }

        /** Decodes one value. Returns NOTHING for an aggregate whose elements follow, and for an empty attribute. */
        private Object element() throws MalformedReply {
            if (bulkLength >= 0) {
                return bulk();
            }
            int lineEnd = lineEnd();
            if (lineEnd < 0) {
                return INCOMPLETE;
            }
            if (lineEnd == start) {
                throw new MalformedReply("an empty line");
            }
            char type = (char) (buffer[start] & 0xff);
            String line = new String(buffer, start + 1, lineEnd - start - 1, StandardCharsets.UTF_8);
            start = lineEnd + 2;
            scanned = start;
            switch (type) {
                case '+':
                    return line.getBytes(StandardCharsets.UTF_8);
                case '-':
                    return new ErrorReply(line);
                case ':':
                    return integer(line);
                case '_':
                    if (!line.isEmpty()) {
                        throw new MalformedReply("a null with a value");
                    }
                    return null;
                case '#':
                    if (!line.equals("t") && !line.equals("f")) {
                        throw new MalformedReply("a boolean is t or f");
                    }
                    return line.equals("t");
                case ',':
                    return real(line);
                case '(':
                    return bigInteger(line);
                case '$':
                case '=':
                case '!':
                    if (type == '$' && line.equals("-1")) {
                        return null;
                    }
                    bulkLength = length(line, MAX_BULK);
                    bulkType = type;
                    return bulk();
                case '*':
                case '~':
                case '>':
                case '%':
                case '|':
                    if (type == '*' && line.equals("-1")) {
                        return null;
                    }
                    return aggregate(type, length(line, MAX_ITEMS));
                default:
                    throw new MalformedReply("there is no type with the code " + Integer.toHexString(type));
            }
        }

        private Object aggregate(char type, int length) throws MalformedReply {
            Frame frame = new Frame(type, type == '%' || type == '|' ? 2 * length : length);
            if (frame.size == 0) {
                return frame.value();
            }
            if (open.size() == MAX_DEPTH) {
                throw new MalformedReply("nested too deeply");
            }
            open.push(frame);
            return NOTHING;
        }

        private Object bulk() throws MalformedReply {
            if (end - start < bulkLength + 2) {
                return INCOMPLETE;
            }
            int after = start + bulkLength;
            if (buffer[after] != '\r' || buffer[after + 1] != '\n') {
                throw new MalformedReply("a string that does not end where it should");
            }
            byte[] bytes = Arrays.copyOfRange(buffer, start, after);
            start = after + 2;
            scanned = start;
            bulkLength = -1;
            switch (bulkType) {
                case '!':
                    return new ErrorReply(new String(bytes, StandardCharsets.UTF_8));
                case '=':
                    if (bytes.length < 4 || bytes[3] != ':') {
                        throw new MalformedReply("a verbatim string without a format");
                    }
                    return Arrays.copyOfRange(bytes, 4, bytes.length);
                default:
                    return bytes;
            }
        }

        /** Returns the end of the line at {@code start}, or -1 if it is incomplete. */
        private int lineEnd() throws MalformedReply {
            for (; scanned < end; scanned++) {
                if (buffer[scanned] == '\n') {
                    throw new MalformedReply("a line feed without a carriage return");
                }
                if (scanned - start > MAX_LINE) {
                    throw new MalformedReply("a line too long");
                }
                if (buffer[scanned] == '\r') {
                    if (scanned + 1 == end) {
                        return -1;
                    }
                    if (buffer[scanned + 1] != '\n') {
                        throw new MalformedReply("a carriage return without a line feed");
                    }
                    return scanned;
                }
            }
            return -1;
        }

        private static int length(String line, int max) throws MalformedReply {
            long length = integer(line);
            if (length < 0 || length > max) {
                throw new MalformedReply("there is no length of " + length);
            }
            return (int) length;
        }

        private static Long integer(String line) throws MalformedReply {
            try {
                return Long.valueOf(line);
            } catch (NumberFormatException e) {
                throw new MalformedReply("not an integer");
            }
        }

        private static BigInteger bigInteger(String line) throws MalformedReply {
            // The conversion of a long number takes quadratic time.
            if (line.length() > 1000) {
                throw new MalformedReply("a number too long");
            }
            try {
                return new BigInteger(line);
            } catch (NumberFormatException e) {
                throw new MalformedReply("not an integer");
            }
        }

        private static Double real(String line) throws MalformedReply {
            switch (line) {
                case "inf":
                    return Double.POSITIVE_INFINITY;
                case "-inf":
                    return Double.NEGATIVE_INFINITY;
                case "nan":
                case "-nan":
                    return Double.NaN;
                default:
                    try {
                        return Double.valueOf(line);
                    } catch (NumberFormatException e) {
                        throw new MalformedReply("not a number");
                    }
            }
        }

        private static final class Frame {
            final char type;
            final int size;
            final List<Object> items = new ArrayList<>();

            Frame(char type, int size) {
                this.type = type;
                this.size = size;
            }

            Object value() {
                switch (type) {
                    case '>':
                        return new Push(items);
                    case '|':
                        return NOTHING;
                    default:
                        return items;
                }
            }
        }
    }
}
