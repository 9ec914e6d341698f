// A connection for many owners, and a second one for waiting: what to do with a client that shares a connection.
// The package does the same by itself.
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

final class Multiplexed {
    public static void main(String[] arguments) throws Exception {
        String a = "recipe:multiplexed:a";
        String b = "recipe:multiplexed:b";
        try (Plain shared = new Plain(); Plain waiting = new Plain()) {
            // The owner names tell the holds on a connection apart. Their session locks all end with it.
            Object alice = shared.call("DLOCK.ACQUIRE", a, "alice", "PX", 10000, "SESSION");
            Object bob = shared.call("DLOCK.ACQUIRE", b, "bob", "PX", 200);
            if (alice != null && bob != null) {
                System.out.println("alice and bob: granted on one connection");
            }

            // BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
            Object carol = waiting.call("DLOCK.ACQUIRE", b, "carol", "PX", 10000, "BLOCK", 5000);
            Object bound = shared.call("DLOCK.RENEW", b, "carol", "TOKEN", carol, "SESSION");
            if (bound.equals(1L)) {
                System.out.println("carol: waited on another, bound to the first");
            }
            shared.call("DLOCK.RELEASE", a, "alice", "TOKEN", alice);
            shared.call("DLOCK.RELEASE", b, "carol", "TOKEN", carol);
        }
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
