package dlock;

import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.net.ssl.SSLContext;

/**
 * Makes locks of the dlock module of Redis and Valkey. A program has one, for all its threads.
 *
 * <pre>{@code
 * DLockClient client = DLockClient.connect("redis://127.0.0.1:6379");
 * DLock lock = client.lock("job:1");
 * lock.lock();
 * try {
 *     write(report, lock.fencingToken());
 * } finally {
 *     lock.unlock();
 * }
 * }</pre>
 */
public final class DLockClient implements AutoCloseable {
    private final Core core;
    private final Lease lease;
    /** Made here, so ended here. */
    private final ExecutorService ownExecutor;

    private DLockClient(Core core, Lease lease, ExecutorService ownExecutor) {
        this.core = core;
        this.lease = lease;
        this.ownExecutor = ownExecutor;
    }

    /**
     * Connects to a server, a primary that Sentinel knows, or a cluster.
     *
     * @param url see {@link Builder#url}
     * @throws UnavailableException it cannot be reached
     */
    public static DLockClient connect(String url) {
        return builder().url(url).connect();
    }

    /** Returns a builder, for what a URL cannot say. */
    public static Builder builder() {
        return new Builder();
    }

    /** Returns the lock of that name, which is the key. */
    public DLock lock(String name) {
        return new DLock(core, Request.lock(List.of(name), Request.Mode.EXCLUSIVE, lease));
    }

    /**
     * Returns several locks as one: the server grants all of them or none, in one command ({@code DLOCK.MACQUIRE}), so
     * programs need not agree on an order. In a cluster their names have the same hash tag.
     */
    public DLock lock(String name, String... more) {
        List<String> names = new ArrayList<>(List.of(name));
        names.addAll(List.of(more));
        for (String other : more) {
            if (!core.backend.together(name, other)) {
                throw new IllegalArgumentException(
                        name + " and " + other + " are not in the same slot of the cluster: give them a hash tag");
            }
        }
        return new DLock(core, Request.lock(List.copyOf(names), Request.Mode.EXCLUSIVE, lease));
    }

    /** Returns the lock of that name for readers and writers. */
    public DReadWriteLock readWriteLock(String name) {
        return new DReadWriteLock(
                new DLock(core, Request.lock(List.of(name), Request.Mode.READ, lease)),
                new DLock(core, Request.lock(List.of(name), Request.Mode.WRITE, lease)));
    }

    /** Returns the semaphore of that name with so many permits ({@code DLOCK.SACQUIRE}). */
    public DSemaphore semaphore(String name, long limit) {
        return new DSemaphore(core, Objects.requireNonNull(name, "name"), limit, lease);
    }

    /**
     * Ends the connections. What is held ends too: with its connection if it is a session, else with its lease. So
     * unlock first.
     */
    @Override
    public void close() {
        core.close();
        if (ownExecutor != null) {
            ownExecutor.shutdown();
        }
    }

    /** Says what a client is to be like. */
    public static final class Builder {
        private String url = "redis://127.0.0.1:6379";
        private Driver driver;
        private Duration longestWait = Duration.ofSeconds(1);
        private String user;
        private String password;
        private String sentinelUser;
        private String sentinelPassword;
        private SSLContext sslContext;
        private String clientName = "dlock-java";
        private Lease lease = Lease.renewed(Duration.ofSeconds(30));
        private Duration timeout = Duration.ofSeconds(5);
        private Duration patience = Duration.ofSeconds(30);
        private Duration besideOldLocks = Duration.ZERO;
        private Executor executor;

        private Builder() {}

        /**
         * Names the servers:
         *
         * <ul>
         *   <li>{@code redis://[user:password@]host[:6379][/database]}: one server, or a node of a cluster;
         *   <li>{@code redis://a:7000,b:7000}: nodes of a cluster, tried in turn;
         *   <li>{@code redis-sentinel://[user:password@]a[:26379],b,c/name[/database]}: the primary of that name;
         *   <li>{@code rediss} instead of {@code redis}: with TLS. {@code valkey} and {@code valkeys} are the same.
         * </ul>
         */
        public Builder url(String servers) {
            this.url = Objects.requireNonNull(servers);
            return this;
        }

        /** Logs in as that user, instead of the one in the URL. */
        public Builder credentials(String name, String secret) {
            this.user = name;
            this.password = Objects.requireNonNull(secret);
            return this;
        }

        /** Logs in to the Sentinels. Without it, no user and password are sent to them. */
        public Builder sentinelCredentials(String name, String secret) {
            this.sentinelUser = name;
            this.sentinelPassword = Objects.requireNonNull(secret);
            return this;
        }

        /**
         * Decides whom to trust, and what certificate to show, instead of {@link SSLContext#getDefault}. The URL is one
         * with TLS. The server's certificate has to be for the host that is connected to.
         */
        public Builder sslContext(SSLContext context) {
            this.sslContext = Objects.requireNonNull(context);
            return this;
        }

        /** Names the connections, as {@code CLIENT LIST} shows it. */
        public Builder clientName(String name) {
            this.clientName = Objects.requireNonNull(name);
            return this;
        }

        /** Sends commands through a client that the program has, instead of to a URL. */
        public Builder driver(Driver other) {
            this.driver = Objects.requireNonNull(other);
            return this;
        }

        /**
         * Says how long a call of the driver may last: less than its read timeout. 1 second by default. A longer wait is
         * made of several calls that keep its place in the queue, each twice as long as the time to the next.
         */
        public Builder longestWait(Duration time) {
            this.longestWait = atLeast(time, 10);
            return this;
        }

        /** The lease of locks that are given none: renewed, 30 seconds. */
        public Builder lease(Lease other) {
            this.lease = Objects.requireNonNull(other);
            return this;
        }

        /** How long connecting, or the reply to a command that does not wait, may take: 5 seconds. */
        public Builder timeout(Duration time) {
            this.timeout = atLeast(time, 1);
            return this;
        }

        /**
         * How long commands are sent again while no server answers, as in a failover, before an
         * {@link UnavailableException}: 30 seconds.
         */
        public Builder patience(Duration time) {
            this.patience = atLeast(time, 1);
            return this;
        }

        /**
         * Takes a key that is not a lock for a lock that is held: for the time in which programs of before still take the
         * same name with {@code SET NX}. Otherwise it is a {@link ServerException}.
         *
         * @param pause between two looks at such a key
         */
        public Builder besideOldLocks(Duration pause) {
            this.besideOldLocks = atLeast(pause, 1);
            return this;
        }

        /** Runs listeners, completes futures, and looks up names of hosts. By default, threads of the client's own. */
        public Builder executor(Executor other) {
            this.executor = Objects.requireNonNull(other);
            return this;
        }

        /**
         * Makes the client, and connects if it has a URL.
         *
         * @throws UnavailableException no server can be reached
         * @throws ServerException the server refuses the user
         */
        public DLockClient connect() {
            ExecutorService own = executor == null ? Executors.newCachedThreadPool(Builder::daemon) : null;
            Executor runs = executor == null ? own : executor;
            DLockClient client = null;
            try {
                Backend backend = driver == null ? servers(runs) : new DriverBackend(driver, longestWait.toMillis());
                Core core = new Core(backend, patience.toMillis(), besideOldLocks.toMillis(), runs);
                client = new DLockClient(core, lease, own);
                return client;
            } finally {
                if (client == null && own != null) {
                    own.shutdown();
                }
            }
        }

        private Backend servers(Executor runs) {
            ServerUrl where = ServerUrl.parse(url);
            if (sslContext != null && !where.tls) {
                throw new IllegalArgumentException("an SSLContext, but a URL without TLS");
            }
            TlsSettings tls = where.tls ? new TlsSettings(sslContext == null ? defaultContext() : sslContext) : null;
            Login login = new Login(
                    password == null ? where.user : user,
                    password == null ? where.password : password,
                    where.database, clientName, tls);
            Login sentinelLogin = new Login(sentinelUser, sentinelPassword, 0, clientName, tls);
            Servers servers = new Servers(where, login, sentinelLogin, timeout.toMillis(), runs);
            boolean started = false;
            try {
                Hold.join(servers.start());
                started = true;
                return servers;
            } finally {
                if (!started) {
                    servers.close();
                }
            }
        }

        private static SSLContext defaultContext() {
            try {
                return SSLContext.getDefault();
            } catch (NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
        }

        private static Duration atLeast(Duration time, long millis) {
            if (time.toMillis() < millis) {
                throw new IllegalArgumentException(time + " is shorter than " + millis + " ms");
            }
            return time;
        }

        private static Thread daemon(Runnable run) {
            Thread thread = new Thread(run, "dlock-worker");
            thread.setDaemon(true);
            return thread;
        }
    }
}
