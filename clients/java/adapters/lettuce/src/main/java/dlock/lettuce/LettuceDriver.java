package dlock.lettuce;

import dlock.Driver;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.BaseRedisAsyncCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/**
 * Sends the commands of dlock through Lettuce: a server, Sentinel or a cluster, whatever the client is for. A connection
 * of Lettuce executes one command after the other, so each call has a connection to itself. They are made by the client,
 * with its login, database and TLS; up to 16 stay open for the next calls.
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
    private static final class Lane {
        final StatefulConnection<byte[], byte[]> connection;
        final BaseRedisAsyncCommands<byte[], byte[]> commands;

        Lane(StatefulConnection<byte[], byte[]> connection, BaseRedisAsyncCommands<byte[], byte[]> commands) {
            this.connection = connection;
            this.commands = commands;
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
        return new Lane(connection, connection.async());
    }

    @Override
    public Object call(byte[]... arguments) throws Exception {
        Lane lane = take();
        boolean isAnswered = false;
        try {
            Future<Object> reply = lane.commands.dispatch(new Name(arguments[0]), new Reply(), of(arguments));
            Object value = reply.get(timeoutMillis, TimeUnit.MILLISECONDS);
            isAnswered = true;
            return value;
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            isAnswered = cause instanceof io.lettuce.core.RedisCommandExecutionException;
            throw cause instanceof Exception ? (Exception) cause : e;
        } catch (TimeoutException e) {
            throw new TimeoutException("no reply within " + timeoutMillis + " ms");
        } finally {
            // A command without an answer must not be executed in front of the next one.
            giveBack(lane, isAnswered);
        }
    }

    private Lane take() {
        synchronized (this) {
            if (isClosed) {
                throw new IllegalStateException("the driver is closed");
            }
            for (Lane next; (next = idle.poll()) != null; ) {
                if (next.connection.isOpen()) {
                    return next;
                }
                next.connection.closeAsync();
            }
        }
        return connect.get();
    }

    private void giveBack(Lane lane, boolean isAnswered) {
        synchronized (this) {
            if (isAnswered && !isClosed && idle.size() < MAX_IDLE) {
                idle.push(lane);
                return;
            }
        }
        lane.connection.closeAsync();
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
