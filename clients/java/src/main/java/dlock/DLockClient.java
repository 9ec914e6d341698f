package dlock;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/**
 * A client of the dlock module of Redis and Valkey. One client serves all threads of a program.
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
    /** The default executor, which this client ends; {@code null}: the user's own. */
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
     * @throws UnavailableException no server can be reached
     */
    public static DLockClient connect(String url) {
        return builder().url(url).connect();
    }

    /** Returns a builder for all other settings. */
    public static Builder builder() {
        return new Builder();
    }

    /** Returns the reentrant lock of this name. The name is the key. */
    public DLock lock(String name) {
        return new DLock(core, Request.lock(List.of(name), Request.Mode.EXCLUSIVE, lease));
    }

    /**
     * Returns several locks as one: the server grants all of them or none ({@code DLOCK.MACQUIRE}), so programs need
     * not agree on an order. In a cluster the names must have the same hash tag.
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

    /** Returns the lock of this name for readers and writers. */
    public DReadWriteLock readWriteLock(String name) {
        return new DReadWriteLock(
                new DLock(core, Request.lock(List.of(name), Request.Mode.READ, lease)),
                new DLock(core, Request.lock(List.of(name), Request.Mode.WRITE, lease)));
    }

    /** Returns the semaphore of this name with {@code limit} permits ({@code DLOCK.SACQUIRE}). */
    public DSemaphore semaphore(String name, long limit) {
        return new DSemaphore(core, Objects.requireNonNull(name, "name"), limit, lease);
    }

    /**
     * Opens a session: one heartbeat for all locks that are acquired with {@link Lease#of(Session)}.
     *
     * @param timeout how long after the last heartbeat the server frees all locks of the session; 300 ms to one hour. A
     *     heartbeat is sent whenever a third of the timeout has passed
     * @throws UnavailableException no server answers within a second
     */
    public Session openSession(Duration timeout) {
        return Session.open(core, timeout, false);
    }

    /**
     * Opens a session as {@link #openSession} does, but heartbeats are sent only while the program calls {@link
     * Session#beat}. If the loop that works calls it, the locks are freed when that loop hangs.
     */
    public Session openManualSession(Duration timeout) {
        return Session.open(core, timeout, true);
    }

    /** Asks the server for the holder of a lock. Empty: the lock is free. */
    public Optional<Holder> holder(String name) {
        return Optional.ofNullable(Holder.of(
                Futures.join(core.repeat(name, Holder.question(name), core.patience())).reply));
    }

    /**
     * Reports the holder of a lock to a listener: the present one at once, then each change. Empty: the lock is free.
     * Changes that follow each other quickly may be reported as one.
     */
    public Watcher watch(String name, Consumer<Optional<Holder>> listener) {
        core.checkOpen();
        if (!core.backend.hasOwnConnections()) {
            throw new IllegalArgumentException("a driver has no connections on which changes could be reported");
        }
        return new Watcher(core, Objects.requireNonNull(name), Objects.requireNonNull(listener)).start();
    }

    /**
     * Takes part in an election, until the election or the client is closed.
     *
     * @param started called when this program becomes the leader, with the hold of the term. The function starts the
     *     leader's work, and returns
     * @param stopped called when the term has ended, or must be assumed to have ended. The function stops the work
     */
    public Election elect(String name, Consumer<? super Hold> started, Consumer<? super Hold> stopped) {
        return elect(lock(name), started, stopped);
    }

    /**
     * Takes part in an election by a lock of this client, with the lock's options: its lease, {@link DLock#withReplicas
     * its replicas}, {@link DLock#withMaxHold the longest term}.
     */
    public Election elect(DLock lock, Consumer<? super Hold> started, Consumer<? super Hold> stopped) {
        return new Election(this, core, lock, Objects.requireNonNull(started), Objects.requireNonNull(stopped)).start();
    }

    /**
     * Gives up the requests that wait, releases all holds of this client, also those with a fixed lease, and closes its
     * connections. If no server answers, returns after 2 seconds, and the holds lapse.
     */
    @Override
    public void close() {
        core.close();
        if (ownExecutor != null) {
            ownExecutor.shutdown();
        }
    }

    /** Settings of a client. */
    public static final class Builder {
        private final Options options = new Options();

        private Builder() {}

        /**
         * Names the servers:
         *
         * <ul>
         *   <li>{@code redis://[user:password@]host[:6379][/database]}: one server, or a node of a cluster.
         *       {@code ?db=database&username=user&password=password} means the same;
         *   <li>{@code redis://a:7000,b:7000}: nodes of a cluster, tried in turn;
         *   <li>{@code redis-sentinel://[user:password@]a[:26379],b,c/name[/database]}: the primary of that name;
         *   <li>{@code rediss} instead of {@code redis}: with TLS. {@code valkey} and {@code valkeys} are the same.
         * </ul>
         *
         * <p>{@link #connect} refuses a URL that says anything else.
         */
        public Builder url(String servers) {
            options.url = Objects.requireNonNull(servers);
            return this;
        }

        /** Sets the user and password, instead of those in the URL. */
        public Builder credentials(String name, String secret) {
            Objects.requireNonNull(secret);
            return credentials(name, () -> secret);
        }

        /**
         * Sets the user, and a provider of a password that changes. The provider is asked for each new connection, and
         * before a connection is used again. It must answer at once.
         *
         * @param name {@code null}: the default user
         */
        public Builder credentials(String name, Supplier<String> secret) {
            options.user = name;
            options.password = Objects.requireNonNull(secret);
            return this;
        }

        /**
         * Sets the beginning of owner names, which {@code dlock info}, {@code DLOCK.INFO} and error messages show: 1 to 36
         * bytes. The default is {@code HOST:PID}. Everybody who may read a lock can read its owner name.
         */
        public Builder owner(String label) {
            options.owner = Owners.checked(label);
            return this;
        }

        /** Sets the user and password for the Sentinels. By default the client does not log in to them. */
        public Builder sentinelCredentials(String name, String secret) {
            options.sentinelUser = name;
            options.sentinelPassword = Objects.requireNonNull(secret);
            return this;
        }

        /**
         * Sets the trusted authorities and the client certificate, instead of {@link SSLContext#getDefault}. Needs a
         * URL with TLS. The server's certificate must be valid for the host to which the client connects.
         */
        public Builder sslContext(SSLContext context) {
            options.sslContext = Objects.requireNonNull(context);
            return this;
        }

        /** Sets the name of the connections in {@code CLIENT LIST}. */
        public Builder clientName(String name) {
            options.clientName = Objects.requireNonNull(name);
            return this;
        }

        /** Sends commands through another Redis client, instead of connections of this client. */
        public Builder driver(Driver other) {
            options.driver = Objects.requireNonNull(other);
            return this;
        }

        /**
         * Sets the longest {@code BLOCK} of a driver's call, which must be shorter than the driver's read timeout. The
         * default is 1 second. A longer wait consists of several calls: each takes over the place of the previous one.
         */
        public Builder longestWait(Duration time) {
            options.longestWait = Options.atLeast(time, 10);
            return this;
        }

        /** Sets the default lease: renewed, 30 seconds. */
        public Builder lease(Lease other) {
            options.lease = Objects.requireNonNull(other);
            return this;
        }

        /** Sets the timeout for connecting, and for replies to commands that do not wait: 5 seconds. */
        public Builder timeout(Duration time) {
            options.timeout = Options.atLeast(time, 1);
            return this;
        }

        /**
         * Sets the time for which a command is sent again while no server answers, for example in a failover. Then it
         * fails with {@link UnavailableException}. It counts from the last time that the server answered. The default is
         * 30 seconds. An acquisition with a limit uses its limit instead.
         */
        public Builder patience(Duration time) {
            options.patience = Options.atLeast(time, 1);
            return this;
        }

        /** Sets the time that a server has to answer a request that does not wait. Only tests set it. */
        Builder tries(Duration time) {
            options.tryMillis = time.toMillis();
            return this;
        }

        /**
         * Treats a key of another type as a held lock, while old programs still lock the same name with {@code SET NX}.
         * By default such a key is an error ({@link ServerException}).
         *
         * @param pause the time between two tries on such a key
         */
        public Builder besideOldLocks(Duration pause) {
            options.besideOldLocks = Options.atLeast(pause, 1);
            return this;
        }

        /** Adds a listener, which is told about every request and every hold. */
        public Builder listener(LockListener listener) {
            options.listeners.add(Objects.requireNonNull(listener));
            return this;
        }

        /** Sets the executor that runs listeners, completes futures and resolves host names. */
        public Builder executor(Executor other) {
            options.executor = Objects.requireNonNull(other);
            return this;
        }

        /**
         * Creates the client, and connects unless it has a driver.
         *
         * @throws UnavailableException no server can be reached
         * @throws ServerException the server refuses the user
         */
        public DLockClient connect() {
            Executor given = options.executor;
            ExecutorService own = given == null ? Executors.newCachedThreadPool(Builder::daemon) : null;
            Executor runs = Core.rejecting(given == null ? own : given);
            Backend backend = null;
            DLockClient client = null;
            try {
                backend = options.driver == null
                        ? servers(runs) : new DriverBackend(options.driver, options.driversWaitMillis());
                Owners owners = options.owners(
                        Builder::host, ProcessHandle.current().pid(), new SecureRandom().nextLong());
                Core core = new Core(
                        backend, owners, options.patience.toMillis(), options.tryMillis,
                        options.besideOldLocks.toMillis(), runs, options.listeners);
                client = new DLockClient(core, options.lease, own);
                return client;
            } finally {
                if (client == null && backend != null) {
                    backend.close();
                }
                if (client == null && own != null) {
                    own.shutdown();
                }
            }
        }

        /** Returns the name of this host, without asking a name server. */
        private static String host() {
            try {
                return Files.readString(Path.of("/proc/sys/kernel/hostname")).trim();
            } catch (IOException | SecurityException e) {
                String name = System.getenv("COMPUTERNAME");
                return name != null ? name : Objects.requireNonNullElse(System.getenv("HOSTNAME"), "");
            }
        }

        private Backend servers(Executor runs) {
            ServerUrl where = options.servers();
            SSLContext context = options.sslContext;
            TlsSettings tls = where.tls ? new TlsSettings(context == null ? defaultContext() : context) : null;
            Servers servers = new Servers(
                    where, options.profile(where, tls), options.sentinelProfile(tls), options.timeout.toMillis(), runs);
            boolean started = false;
            try {
                Futures.join(servers.start());
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

        private static Thread daemon(Runnable run) {
            Thread thread = new Thread(run, "dlock-worker");
            thread.setDaemon(true);
            return thread;
        }
    }
}
