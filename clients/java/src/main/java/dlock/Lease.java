package dlock;

import java.time.Duration;
import java.util.Objects;

/** Determines when a lock ends by itself, and how it is kept alive. */
public final class Lease {
    enum Kind {
        RENEWED,
        FIXED,
        SESSION,
        NAMED
    }

    /** The shortest lease. Client and server count in whole milliseconds, so that nothing is certain of 2 ms. */
    static final long SHORTEST_MILLIS = 3;
    /** The shortest lease of a lock that is bound to a connection. */
    static final long SHORTEST_SESSION_MILLIS = 300;

    final Kind kind;
    final long millis;
    /** The named session, or {@code null}. */
    final Session session;

    private Lease(Kind kind, Duration time, long least) {
        this(kind, time, least, null);
    }

    private Lease(Kind kind, Duration time, long least, Session session) {
        this.kind = kind;
        this.session = session;
        this.millis = Objects.requireNonNull(time, "time").toMillis();
        if (millis < least) {
            throw new IllegalArgumentException("a lease of " + time + " is shorter than " + least + " ms");
        }
    }

    /**
     * The client renews the lease when a third of it has passed, until the release. If the process dies, the lock ends
     * with the lease. The lock survives a lost connection if the client connects again within the lease.
     */
    public static Lease renewed(Duration time) {
        return new Lease(Kind.RENEWED, time, SHORTEST_MILLIS);
    }

    /** The lease is not renewed: the lock ends after this time if it is not released. */
    public static Lease fixed(Duration time) {
        return new Lease(Kind.FIXED, time, SHORTEST_MILLIS);
    }

    /**
     * The server renews the lease while the connection that acquired the lock is open, and releases the lock when the
     * connection ends. If the process dies, the next owner gets the lock at once. Each hold has its own connection.
     *
     * @param time the lease, 300 ms or more. If the server restarts and the client is gone, the lock lapses after this
     *     time
     */
    public static Lease session(Duration time) {
        return new Lease(Kind.SESSION, time, SHORTEST_SESSION_MILLIS);
    }

    /**
     * The session keeps the lock together with its other locks, by one heartbeat. The server frees the lock when the
     * session ends. The lease itself is three times the session's timeout.
     *
     * @param session an open session of the same client
     */
    public static Lease of(Session session) {
        Duration time = Duration.ofMillis(session.leaseMillis());
        return new Lease(Kind.NAMED, time, 1, session);
    }

    /** Returns the same lease, kept by the session on a node. */
    Lease in(Session other) {
        return new Lease(kind, Duration.ofMillis(millis), 1, other);
    }

    /** Returns the same kind of lease, of this time if it is longer. */
    Lease longer(Duration time) {
        return time.toMillis() <= millis ? this : new Lease(kind, time, 1, session);
    }

    @Override
    public String toString() {
        return kind.name().toLowerCase(java.util.Locale.ROOT) + " lease of " + millis + " ms";
    }
}
