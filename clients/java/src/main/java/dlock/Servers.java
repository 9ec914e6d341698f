package dlock;

import java.io.EOFException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongFunction;

/** The client's own connections to one server, to the primary that Sentinel knows, or to the nodes of a cluster. */
final class Servers implements Backend {
    /** The time that a server has to close an abandoned connection. */
    private static final long LEAVING_MILLIS = 2000;

    private final Loop loop = new Loop();
    private final ServerUrl url;
    private final Profile profile;
    private final Profile sentinelProfile;
    private final long timeoutMillis;
    private final Executor executor;
    private final Map<Address, Node> nodes = new ConcurrentHashMap<>();
    private volatile Topology topology;
    private volatile boolean closed;

    Servers(
            ServerUrl url,
            Profile profile,
            Profile sentinelProfile,
            long timeoutMillis,
            Executor executor) {
        this.url = url;
        this.profile = profile;
        this.sentinelProfile = sentinelProfile;
        this.timeoutMillis = timeoutMillis;
        this.executor = executor;
    }

    /** Connects for the first time, and detects whether the server belongs to a cluster. */
    CompletableFuture<Void> start() {
        if (url.primary != null) {
            topology = new Topology.Sentinels(this, url.addresses, url.primary);
            return topology.route("").thenCompose(route -> route.node.shared()).thenApply(connection -> null);
        }
        return Topology.firstOf(url.addresses, address -> node(address).shared()).thenAccept(connection -> {
            if (connection.mode().equals("cluster")) {
                topology = new Topology.Cluster(this, url.addresses);
            } else if (url.addresses.size() == 1) {
                topology = new Topology.Single(node(url.addresses.get(0)));
            } else {
                throw new IllegalArgumentException(connection.address() + " is not a node of a cluster,"
                        + " so the URL names one server only");
            }
        });
    }

    Node node(Address address) {
        return nodes.computeIfAbsent(
                address, key -> new Node(loop, key, profile, timeoutMillis, executor));
    }

    /** Sends one command to a Sentinel, on a new connection. */
    CompletableFuture<Object> askSentinel(Address sentinel, byte[][] question) {
        Node node = new Node(loop, sentinel, sentinelProfile, timeoutMillis, executor);
        return node.take().thenCompose(connection ->
                node.ask(connection, question).whenComplete((reply, failed) -> connection.close()));
    }

    @Override
    public boolean hasOwnConnections() {
        return true;
    }

    @Override
    public boolean isCluster() {
        return topology instanceof Topology.Cluster;
    }

    @Override
    public CompletableFuture<String> serverOf(String key) {
        return noted(key, route(key).thenApply(route -> route.node.address().toString()));
    }

    @Override
    public void distrust(String key) {
        topology.note(key, new Unanswered("the server does not answer", null));
    }

    @Override
    public boolean together(String one, String other) {
        return topology.together(one, other);
    }

    @Override
    public CompletableFuture<Object> ask(String key, byte[][] command) {
        return noted(key, route(key).thenCompose(route -> {
            if (!route.asking) {
                return route.node.shared().thenCompose(connection -> route.node.ask(connection, command));
            }
            return route.node.take().thenCompose(connection -> {
                connection.send(Words.command("ASKING"));
                return route.node.ask(connection, command)
                        .whenComplete((reply, failed) -> route.node.giveBack(connection));
            });
        }));
    }

    @Override
    public CompletableFuture<DedicatedConnection> dedicated(String key) {
        return noted(key, route(key).thenCompose(route ->
                route.node.take().thenApply(connection -> new ServerConnection(key, route, connection))));
    }

    private CompletableFuture<Topology.Route> route(String key) {
        return closed
                ? CompletableFuture.failedFuture(new Unanswered("the client is closed", null))
                : topology.route(key);
    }

    /** Returns the future after the topology has learned from its failure. */
    private <T> CompletableFuture<T> noted(String key, CompletableFuture<T> future) {
        return future.whenComplete((done, failed) -> {
            if (failed != null) {
                topology.note(key, Futures.cause(failed));
            }
        });
    }

    @Override
    public void close() {
        closed = true;
        nodes.values().forEach(Node::close);
        loop.close();
    }

    /** A connection of this client. */
    private final class ServerConnection implements DedicatedConnection {
        private final String key;
        private final Topology.Route route;
        private final Connection connection;
        private volatile CompletableFuture<Object> reply;
        /** Whether the connection has ended without a reply, and the server has not closed it. */
        private volatile boolean isCut;
        /** Whether the server is no primary any more. */
        private volatile boolean isOfReplica;

        ServerConnection(String key, Topology.Route route, Connection connection) {
            this.key = key;
            this.route = route;
            this.connection = connection;
        }

        @Override
        public CompletableFuture<Object> request(LongFunction<byte[][]> command, Limits limit, boolean waits) {
            if (route.asking) {
                connection.send(Words.command("ASKING"));
            }
            long block = waits ? limit.block(System.nanoTime()) : NOT_AT_ALL;
            CompletableFuture<Object> sent = connection.send(command.apply(block));
            reply = sent;
            route.node.watch(connection, sent, limit.hearMillis(), this::whereNow);
            if (block != 0) {
                Node.limited(connection, sent, Math.max(0, block) + timeoutMillis);
            }
            return noted(sent);
        }

        private <T> CompletableFuture<T> noted(CompletableFuture<T> answer) {
            return Servers.this.noted(key, answer.whenComplete((done, failed) ->
                    isOfReplica |= failed != null && ServerException.isOfReplica(Futures.cause(failed))));
        }

        /** Returns the node that the topology names after it has heard that this one is silent. */
        private CompletableFuture<Node> whereNow() {
            topology.note(key, new Unanswered("the server does not answer", null));
            return route(key).thenApply(now -> now.node);
        }

        @Override
        public long answered() {
            return route.node.answered();
        }

        @Override
        public CompletableFuture<Object> ask(byte[][] command, long millis) {
            return noted(Node.limited(connection, connection.send(command), millis + timeoutMillis));
        }

        @Override
        public CompletableFuture<Object> askPatiently(byte[][] command) {
            return noted(connection.send(command).copy().orTimeout(timeoutMillis, TimeUnit.MILLISECONDS)
                    .exceptionally(failed -> {
                        if (Futures.cause(failed) instanceof TimeoutException) {
                            throw new Unanswered("no reply within " + timeoutMillis + " ms", null);
                        }
                        throw Futures.rethrown(failed);
                    }));
        }

        @Override
        public CompletableFuture<Object> leave(List<byte[][]> undo) {
            undo.forEach(connection::send);
            connection.finish();
            CompletableFuture<Throwable> ended = connection.ended();
            ended.copy().orTimeout(LEAVING_MILLIS, TimeUnit.MILLISECONDS)
                    .whenComplete((reason, late) -> connection.close());
            return ended.handle((reason, failed) -> {
                if (reply == null || reply.isCompletedExceptionally()) {
                    // A server that has closed a connection executes nothing more that was sent on it.
                    isCut = reply != null && !(reason instanceof EOFException);
                    return null;
                }
                return reply.getNow(null);
            });
        }

        @Override
        public boolean isCopied() {
            return isCut;
        }

        @Override
        public void whenEnded(Runnable task) {
            connection.whenEnded(task);
        }

        @Override
        public void whenInvalidated(Runnable task) {
            connection.whenInvalidated(task);
        }

        @Override
        public void giveBack() {
            connection.whenEnded(null);
            if (isOfReplica) {
                // The address may be that of another server now.
                connection.close();
            } else {
                route.node.giveBack(connection);
            }
        }
    }

    /** Returns the cluster slot of a key: CRC-16/XMODEM of the key, or of its hash tag. */
    static int slot(String key) {
        byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
        int from = 0;
        int to = bytes.length;
        for (int open = 0; open < bytes.length; open++) {
            if (bytes[open] == '{') {
                int close = open + 1;
                while (close < bytes.length && bytes[close] != '}') {
                    close++;
                }
                if (close < bytes.length && close > open + 1) {
                    from = open + 1;
                    to = close;
                }
                break;
            }
        }
        int crc = 0;
        for (int i = from; i < to; i++) {
            crc ^= (bytes[i] & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) == 0 ? crc << 1 : crc << 1 ^ 0x1021;
            }
        }
        return crc & 0x3fff;
    }

    List<Address> known() {
        return new ArrayList<>(nodes.keySet());
    }
}
