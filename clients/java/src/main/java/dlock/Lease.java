package dlock;

import java.time.Duration;
import java.util.Objects;

/** Decides when a lock ends by itself, and who prevents it. */
public final class Lease {
    enum Kind {
        RENEWED,
        FIXED,
        SESSION
    }

    final Kind kind;
    final long millis;

    private Lease(Kind kind, Duration time, long least) {
        this.kind = kind;
        this.millis = Objects.requireNonNull(time, "time").toMillis();
        if (millis < least) {
            throw new IllegalArgumentException("a lease of " + time + " is shorter than " + least + " ms");
        }
    }

    /**
     * The client renews the lease whenever a third of it has passed, until the release. If the process dies, the lock
     * ends with the lease. A lost connection does no harm if the client can connect again before that.
     */
    public static Lease renewed(Duration time) {
        return new Lease(Kind.RENEWED, time, 3);
    }

    /** Nobody renews the lease: the lock ends after this time, released or not. */
    public static Lease fixed(Duration time) {
        return new Lease(Kind.FIXED, time, 1);
    }

    /**
     * The server renews the lease for as long as the connection that took the lock is open, and frees the lock when it
     * ends. If the process dies, the next owner gets the lock at once. Each hold has a connection of its own.
     *
     * @param time the lease, 300 ms or more: how long the lock outlives a server that dies together with the holder
     */
    public static Lease session(Duration time) {
        return new Lease(Kind.SESSION, time, 300);
    }

    @Override
    public String toString() {
        return kind.name().toLowerCase(java.util.Locale.ROOT) + " lease of " + millis + " ms";
    }
}
