// A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
// The package acquires the lock. The transaction needs a client for all commands, which here is a plain socket.
import dlock.DLockClient;
import dlock.Hold;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

final class WatchMulti {
    private static final String LOCK = "recipe:watch_multi";

    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port);
                Plain redis = new Plain(); // of its own: WATCH is for all commands on a connection
                Plain other = new Plain()) {
            Hold alice = client.lock(LOCK).acquire();
            if (write(redis, alice, "one", () -> {})) {
                System.out.println("alice: written");
            }
            if (!write(redis, alice, "two", () -> other.call("DEL", LOCK))) {
                System.out.println("alice: not written, the lock was lost");
            }
        }
    }

    private static boolean write(Plain redis, Hold hold, String value, Meanwhile meanwhile) throws IOException {
        redis.call("WATCH", LOCK);
        if (redis.call("DLOCK.CHECK", LOCK, hold.fencingToken()) == null) {
            redis.call("UNWATCH");
            return false;
        }
        meanwhile.run();
        redis.call("MULTI");
        redis.call("SET", "recipe:value", value);
        return redis.call("EXEC") != null;
    }

    private interface Meanwhile {
        void run() throws IOException;
    }

    /** A connection that speaks the protocol of Redis. Any client that can send an unknown command does the same. */
    private static final class Plain implements AutoCloseable {
        private final Socket socket;
        private final InputStream in;

        Plain() throws IOException {
            String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
            String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
            socket = new Socket(host, Integer.parseInt(port));
            in = new BufferedInputStream(socket.getInputStream());
        }

        /** Returns a long, a string, a list, or null for nil. */
        Object call(Object... words) throws IOException {
            StringBuilder command = new StringBuilder("*" + words.length + "\r\n");
            for (Object word : words) {
                String text = word.toString();
                command.append("$" + text.length() + "\r\n" + text + "\r\n");
            }
            socket.getOutputStream().write(command.toString().getBytes(StandardCharsets.US_ASCII));
            return reply();
        }

        private Object reply() throws IOException {
            String line = line();
            switch (line.charAt(0)) {
                case ':':
                    return Long.valueOf(line.substring(1));
                case '$':
                    int length = Integer.parseInt(line.substring(1));
                    return length < 0 ? null : new String(in.readNBytes(length + 2), 0, length);
                case '*':
                    int size = Integer.parseInt(line.substring(1));
                    List<Object> items = size < 0 ? null : new ArrayList<>();
                    for (int i = 0; i < size; i++) {
                        items.add(reply());
                    }
                    return items;
                case '-':
                    throw new IOException(line.substring(1));
                default:
                    return line.substring(1);
            }
        }

        private String line() throws IOException {
            StringBuilder line = new StringBuilder();
            for (int c; (c = in.read()) != '\r'; ) {
                if (c < 0) {
                    throw new IOException("closed by the server");
                }
                line.append((char) c);
            }
            in.read();
            return line.toString();
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
