package dlock;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketOption;
import java.net.StandardSocketOptions;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A connection to a server. Replies come in the order of the commands. A failed connection is never reopened. */
final class Connection {
    private final Loop loop;
    private final Address address;
    private final SocketChannel channel;
    private final Profile.Greeting greeting;
    private final Resp.Decoder decoder = new Resp.Decoder();
    private final ArrayDeque<CompletableFuture<Object>> unanswered = new ArrayDeque<>();
    private final ArrayDeque<ByteBuffer> outgoing = new ArrayDeque<>();
    private final CompletableFuture<Throwable> ended = new CompletableFuture<>();
    private Wire wire;
    private ByteBuffer incoming;
    private SelectionKey key;
    private boolean finishing;
    private boolean finished;
    private Throwable failure;
    private Runnable atEnd;
    private volatile Runnable invalidated;
    private volatile Runnable heard = () -> {};
    private String mode = "";
    private String role = "";

    private Connection(Loop loop, Address address, SocketChannel channel, Profile.Greeting greeting) {
        this.loop = loop;
        this.greeting = greeting;
        this.address = address;
        this.channel = channel;
    }

    /** Connects, and logs in. The future fails with {@link Unanswered} or {@link ServerException}. */
    static CompletableFuture<Connection> open(Loop loop, Address address, Profile profile, long timeoutMillis) {
        Connection connection;
        boolean connected;
        try {
            // Resolving the name may block, so this does not run on the loop's thread.
            InetSocketAddress where = new InetSocketAddress(address.host, address.port);
            if (where.isUnresolved()) {
                throw new UnknownHostException(address.host);
            }
            Profile.Greeting greeting = profile.greeting();
            SocketChannel channel = SocketChannel.open();
            connection = new Connection(loop, address, channel, greeting);
            try {
                channel.configureBlocking(false);
                setOptions(channel);
                connection.wire = profile.tls == null
                        ? new Wire.Plain(channel)
                        : new Wire.Tls(channel, profile.tls.engine(address.host, address.port));
                connection.incoming = ByteBuffer.allocate(connection.wire.readSize());
                connected = channel.connect(where);
            } catch (IOException | RuntimeException e) {
                channel.close();
                throw e;
            }
        } catch (IOException | RuntimeException e) {
            return CompletableFuture.failedFuture(unreachable(address, e));
        }
        CompletableFuture<Connection> ready = connection.logIn();
        boolean isConnected = connected;
        loop.execute(() -> connection.register(isConnected));
        ready.copy().orTimeout(timeoutMillis, TimeUnit.MILLISECONDS).whenComplete((done, failed) -> {
            if (failed != null) {
                connection.fail(failed);
            }
        });
        return ready;
    }

    private static Unanswered unreachable(Address address, Throwable cause) {
        return new Unanswered(address + " cannot be reached: " + cause, cause);
    }

    /** Sets TCP keepalive to detect a dead peer after 30 seconds, where the platform allows that. */
    private static void setOptions(SocketChannel channel) throws IOException {
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
        for (SocketOption<?> option : channel.supportedOptions()) {
            if (option.type() == Integer.class) {
                @SuppressWarnings("unchecked")
                SocketOption<Integer> number = (SocketOption<Integer>) option;
                switch (option.name()) {
                    case "TCP_KEEPIDLE":
                        channel.setOption(number, 15);
                        break;
                    case "TCP_KEEPINTERVAL":
                        channel.setOption(number, 5);
                        break;
                    case "TCP_KEEPCOUNT":
                        channel.setOption(number, 3);
                        break;
                    default:
                }
            }
        }
    }

    private CompletableFuture<Connection> logIn() {
        CompletableFuture<Object> done = send(greeting.hello).thenApply(this::introduced);
        if (greeting.select != null) {
            CompletableFuture<Object> selected = send(greeting.select);
            done = done.thenCombine(selected, (greeting, ok) -> ok);
        }
        return done.handle((ok, failed) -> {
            if (failed == null) {
                return this;
            }
            fail(failed);
            throw Futures.rethrown(failed);
        });
    }

    private Object introduced(Object greeting) {
        List<?> fields = greeting instanceof List ? (List<?>) greeting : List.of();
        for (int i = 0; i + 1 < fields.size(); i += 2) {
            String name = Words.text(fields.get(i));
            if (name.equals("mode")) {
                mode = Words.text(fields.get(i + 1));
            } else if (name.equals("role")) {
                role = Words.text(fields.get(i + 1));
            }
        }
        return greeting;
    }

    /** Returns the greeting that it was opened with. */
    Profile.Greeting greeting() {
        return greeting;
    }

    Address address() {
        return address;
    }

    /** Returns the server's mode: {@code standalone}, {@code cluster} or {@code sentinel}. */
    String mode() {
        return mode;
    }

    /** Returns {@code master} or {@code replica}, as it was when the connection was made. */
    String role() {
        return role;
    }

    /** Completes with the reason when either side has ended the connection. */
    CompletableFuture<Throwable> ended() {
        return ended;
    }

    /** Sets the task that runs when the connection ends, at once if it has ended. {@code null} removes it. */
    void whenEnded(Runnable task) {
        boolean over;
        synchronized (this) {
            atEnd = task;
            over = failure != null;
        }
        if (over && task != null) {
            task.run();
        }
    }

    /** Sets the task that runs when a tracked key has changed. */
    void whenInvalidated(Runnable task) {
        invalidated = task;
    }

    /** Sets the task that runs at every reply of a server that is not starting. */
    void whenHeard(Runnable task) {
        heard = task;
    }

    /** Returns whether every command was answered, so that the next reply belongs to the next command. */
    synchronized boolean isIdle() {
        return failure == null && !finishing && unanswered.isEmpty();
    }

    /** Sends a command. The future fails with {@link Unanswered} or {@link ServerException}. */
    CompletableFuture<Object> send(byte[]... command) {
        CompletableFuture<Object> reply = new CompletableFuture<>();
        ByteBuffer bytes = ByteBuffer.wrap(Resp.encode(command));
        Throwable failed;
        synchronized (this) {
            failed = finishing && failure == null ? new ClosedChannelException() : failure;
            if (failed == null) {
                unanswered.add(reply);
                outgoing.add(bytes);
                // The loop's thread sends the rest if the socket buffer is full.
                if (key != null && outgoing.size() == 1) {
                    try {
                        write();
                    } catch (IOException e) {
                        loop.execute(() -> fail(e));
                    }
                }
            }
        }
        if (failed != null) {
            reply.completeExceptionally(lost(failed));
        }
        return reply;
    }

    /** Ends the sending side. The server executes the commands that it has received, then closes the connection. */
    void finish() {
        synchronized (this) {
            finishing = true;
            if (key != null && outgoing.isEmpty()) {
                try {
                    write();
                } catch (IOException e) {
                    loop.execute(() -> fail(e));
                }
            }
        }
    }

    void close() {
        fail(new IOException("closed by the client"));
    }

    void fail(Throwable reason) {
        List<CompletableFuture<Object>> left;
        Runnable task;
        synchronized (this) {
            if (failure != null) {
                return;
            }
            failure = reason;
            left = new ArrayList<>(unanswered);
            unanswered.clear();
            outgoing.clear();
            task = atEnd;
        }
        try {
            channel.close();
        } catch (IOException ignored) {
            // The connection is unusable in either case.
        }
        // The selector closes the socket when it deregisters the key.
        loop.selector().wakeup();
        left.forEach(reply -> reply.completeExceptionally(lost(reason)));
        ended.complete(reason);
        if (task != null) {
            task.run();
        }
    }

    private Unanswered lost(Throwable reason) {
        return new Unanswered("the connection to " + address + " was lost: " + Futures.cause(reason), reason);
    }

    private void register(boolean connected) {
        try {
            synchronized (this) {
                if (failure != null) {
                    return;
                }
                int interest = connected ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_CONNECT;
                SelectionKey registered = channel.register(loop.selector(), interest, this);
                if (connected) {
                    key = registered;
                    write();
                }
            }
        } catch (IOException | RuntimeException e) {
            fail(e);
        }
    }

    Timer timer() {
        return loop.timer();
    }

    /** Connects, writes or reads. Runs on the loop's thread. */
    void ready(SelectionKey selected) throws IOException {
        if (selected.isConnectable()) {
            channel.finishConnect();
            synchronized (this) {
                key = selected;
                write();
            }
            return;
        }
        if (selected.isWritable()) {
            synchronized (this) {
                write();
            }
        }
        if (selected.isReadable()) {
            read();
        }
    }

    /** Sends as much as the socket takes, and registers for the rest. The caller holds the monitor. */
    private void write() throws IOException {
        boolean taken = wire.write(outgoing);
        if (taken && outgoing.isEmpty() && finishing && !finished) {
            finished = true;
            wire.finish();
        }
        int interest = taken ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE;
        if (key.isValid() && key.interestOps() != interest) {
            key.interestOps(interest);
            key.selector().wakeup();
        }
    }

    private void read() throws IOException {
        for (;;) {
            incoming.clear();
            int count;
            synchronized (this) {
                if (failure != null) {
                    return;
                }
                count = wire.read(incoming);
                // A TLS record that was read may require a reply.
                if (count <= 0) {
                    write();
                }
            }
            if (count < 0) {
                throw new EOFException("closed by the server");
            }
            if (count == 0) {
                return;
            }
            incoming.flip();
            decoder.feed(incoming);
            for (Object reply; (reply = decoder.next()) != Resp.Decoder.INCOMPLETE; ) {
                answer(reply);
            }
            if (!wire.mayHaveMore(count == incoming.capacity())) {
                return;
            }
        }
    }

    private void answer(Object reply) throws IOException {
        ServerException refusal = reply instanceof Resp.ErrorReply
                ? ServerException.of(((Resp.ErrorReply) reply).message, null)
                : null;
        if (!ServerException.isStarting(refusal)) {
            heard.run();
        }
        if (reply instanceof Resp.Push) {
            // The only pushes that this client asks for are about tracked keys.
            Runnable told = invalidated;
            if (told != null) {
                told.run();
            }
            return;
        }
        CompletableFuture<Object> next;
        synchronized (this) {
            next = unanswered.poll();
        }
        if (next == null) {
            throw new IOException("unexpected reply: "
                    + (reply instanceof byte[] ? new String((byte[]) reply, StandardCharsets.UTF_8) : reply));
        }
        if (refusal != null) {
            next.completeExceptionally(refusal);
        } else {
            next.complete(reply);
        }
    }
}
