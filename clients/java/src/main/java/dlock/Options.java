package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/** The settings of a client. A setting that would have no effect is refused. */
final class Options {
    private static final String URL = "redis://127.0.0.1:6379";

    /** {@code null}: the default. */
    String url;
    Driver driver;
    Duration longestWait;
    String user;
    Supplier<String> password;
    String sentinelUser;
    String sentinelPassword;
    SSLContext sslContext;
    String clientName = "dlock-java";
    String owner;
    Lease lease = Lease.renewed(Duration.ofSeconds(30));
    Duration timeout = Duration.ofSeconds(5);
    Duration patience = Duration.ofSeconds(30);
    /** The time that a server has to answer a try. Only tests set it: for users, it is what the documentation says. */
    long tryMillis = Limits.TRY_MILLIS;
    Duration besideOldLocks = Duration.ZERO;
    /** {@code null}: threads of the client. */
    Executor executor;
    final List<LockListener> listeners = new ArrayList<>();

    static Duration atLeast(Duration time, long millis) {
        if (time.toMillis() < millis) {
            throw new IllegalArgumentException(time + " is shorter than " + millis + " ms");
        }
        return time;
    }

    /** Returns where the servers are. Throws {@link IllegalArgumentException} for settings that contradict each other. */
    ServerUrl servers() {
        ServerUrl where = ServerUrl.parse(Objects.requireNonNullElse(url, URL));
        if (sslContext != null && !where.tls) {
            throw new IllegalArgumentException("an SSLContext, but a URL without TLS");
        }
        if (sentinelPassword != null && where.primary == null) {
            throw new IllegalArgumentException("credentials of Sentinels, but a URL without them");
        }
        if (longestWait != null) {
            throw new IllegalArgumentException("a longest wait, which only a driver has");
        }
        return where;
    }

    /** Returns the longest wait of the driver, which has its own servers and logins. */
    long driversWaitMillis() {
        if (url != null || password != null || sentinelPassword != null || sslContext != null) {
            throw new IllegalArgumentException(
                    "a driver has its own connections, so there is no URL, login or SSLContext beside it");
        }
        return longestWait == null ? 1000 : longestWait.toMillis();
    }

    /** Returns what each connection to the servers has. The login of the caller replaces that of the URL. */
    Profile profile(ServerUrl where, TlsSettings tls) {
        return password == null
                ? new Profile(where.user, where.password, where.database, clientName, tls)
                : new Profile(user, password, where.database, clientName, tls);
    }

    /** Returns what each connection to the Sentinels has. */
    Profile sentinelProfile(TlsSettings tls) {
        return new Profile(sentinelUser, sentinelPassword, 0, clientName, tls);
    }

    /** Returns the names of owners. {@code random}: makes them unique. */
    Owners owners(Supplier<String> host, long process, long random) {
        return new Owners(owner == null ? Owners.labelOf(host.get(), process) : owner, random);
    }
}
