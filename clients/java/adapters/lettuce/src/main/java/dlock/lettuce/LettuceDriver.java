package dlock.lettuce;

import dlock.Driver;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.BaseRedisAsyncCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/**
 * Sends the commands of dlock through Lettuce: a server, Sentinel or a cluster, whatever the client is for. A connection
 * of Lettuce executes one command after the other, so each call has a connection to itself. The client of Lettuce makes
 * the connections, with its login, database and TLS; up to 16 stay open for the next calls.
 *
 * <pre>{@code
 * LettuceDriver driver = LettuceDriver.over(redisClient);
 * DLockClient client = DLockClient.builder().driver(driver).connect();
 * }</pre>
 *
 * <p>Several threads may use it. {@link #close} closes its connections, but not the client of Lettuce.
 */
public final class LettuceDriver implements Driver, AutoCloseable {
    private static final int MAX_IDLE = 16;

    /** A connection, and what sends on it. */
    private static final class Lane implements RedisConnectionStateListener {
        final StatefulConnection<byte[], byte[]> connection;
        final BaseRedisAsyncCommands<byte[], byte[]> commands;
        /** Fails at the end of the connection. Lettuce would connect again later, perhaps much later. */
        final CompletableFuture<Object> ended = new CompletableFuture<>();

        Lane(StatefulConnection<byte[], byte[]> connection, BaseRedisAsyncCommands<byte[], byte[]> commands) {
            this.connection = connection;
            this.commands = commands;
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> its) {
            // Lettuce would send the commands again, perhaps after the client has sent their successors.
            leave();
            ended.completeExceptionally(new IOException("the connection ended"));
        }

        boolean isOpen() {
            return !ended.isDone() && connection.isOpen();
        }

        void leave() {
            connection.closeAsync();
        }
    }

    private final Supplier<Lane> connect;
    private final ArrayDeque<Lane> idle = new ArrayDeque<>();
    private final long timeoutMillis;
    private boolean isClosed;

    private LettuceDriver(Supplier<Lane> connect, Duration timeout) {
        this.connect = connect;
        this.timeoutMillis = timeout.toMillis();
    }

    /** Returns a driver over a client that was created with a URI. A call has 5 seconds. */
    public static LettuceDriver over(RedisClient client) {
        return new LettuceDriver(() -> lane(client.connect(ByteArrayCodec.INSTANCE)), Duration.ofSeconds(5));
    }

    /**
     * Returns a driver over a client.
     *
     * @param timeout for a call, longer than {@code longestWait} of the builder (1 second)
     */
    public static LettuceDriver over(RedisClient client, RedisURI uri, Duration timeout) {
        return new LettuceDriver(() -> lane(client.connect(ByteArrayCodec.INSTANCE, uri)), timeout);
    }

    /** Returns a driver over a client of a cluster. A call has 5 seconds. */
    public static LettuceDriver over(RedisClusterClient client) {
        return new LettuceDriver(() -> {
            StatefulRedisClusterConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE);
            return new Lane(connection, connection.async());
        }, Duration.ofSeconds(5));
    }

    private static Lane lane(StatefulRedisConnection<byte[], byte[]> connection) {
        Lane lane = new Lane(connection, connection.async());
        connection.addListener(lane);
        return lane;
    }

    @Override
    public Object call(byte[]... arguments) throws Exception {
        Lane lane = take();
        boolean isAnswered = false;
        try {
            CompletableFuture<Object> reply = lane.commands
                    .dispatch(new Name(arguments[0]), new Reply(), of(arguments)).toCompletableFuture();
            Object value = inTime(CompletableFuture.anyOf(reply, lane.ended));
            isAnswered = true;
            return value;
        } catch (RedisCommandExecutionException e) {
            isAnswered = true;
            throw e;
        } finally {
            giveBack(lane, isAnswered);
        }
    }

    private <T> T inTime(CompletableFuture<T> future) throws Exception {
        try {
            return future.get(timeoutMillis, TimeUnit.MILLISECONDS);
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            throw cause instanceof Exception ? (Exception) cause : e;
        } catch (TimeoutException e) {
            throw new TimeoutException("no reply within " + timeoutMillis + " ms");
        }
    }

    private Lane take() throws Exception {
        synchronized (this) {
            if (isClosed) {
                throw new IllegalStateException("the driver is closed");
            }
            for (Lane next; (next = idle.poll()) != null; ) {
                if (next.isOpen()) {
                    return next;
                }
                next.leave();
            }
        }
        return connected();
    }

    /** Lettuce waits a minute for a server that hangs, while Sentinel may know another one. */
    private Lane connected() throws Exception {
        CompletableFuture<Lane> made = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                Lane lane = connect.get();
                if (!made.complete(lane)) {
                    lane.leave();
                }
            } catch (RuntimeException | Error e) {
                made.completeExceptionally(e);
            }
        }, "dlock-lettuce");
        thread.setDaemon(true);
        thread.start();
        try {
            return inTime(made);
        } catch (Exception e) {
            // A connection that comes later is closed.
            made.cancel(false);
            throw e;
        }
    }

    private void giveBack(Lane lane, boolean isAnswered) {
        List<Lane> left = new ArrayList<>();
        synchronized (this) {
            if (isAnswered && !isClosed && idle.size() < MAX_IDLE) {
                idle.push(lane);
                return;
            }
            if (!isAnswered) {
                // The others lead to the same server.
                left.addAll(idle);
                idle.clear();
            }
        }
        // A command without an answer must not be executed in front of the next one.
        left.add(lane);
        left.forEach(Lane::leave);
    }

    /** Closes the connections. */
    @Override
    public void close() {
        ArrayDeque<Lane> left;
        synchronized (this) {
            isClosed = true;
            left = new ArrayDeque<>(idle);
            idle.clear();
        }
        left.forEach(lane -> lane.connection.close());
    }

    /** The key is named, because a cluster finds the node by it. */
    private static CommandArgs<byte[], byte[]> of(byte[][] arguments) {
        String name = new String(arguments[0], StandardCharsets.US_ASCII);
        int key = name.equals("DLOCK.SESSION") ? -1 : name.equals("DLOCK.MACQUIRE") ? 2 : 1;
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (int i = 1; i < arguments.length; i++) {
            if (i == key) {
                args.addKey(arguments[i]);
            } else {
                args.add(arguments[i]);
            }
        }
        return args;
    }

    /** The name of a command that Lettuce does not know. */
    private static final class Name implements ProtocolKeyword {
        private final byte[] bytes;

        Name(byte[] bytes) {
            this.bytes = bytes;
        }

        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return new String(bytes, StandardCharsets.US_ASCII);
        }
    }
}
