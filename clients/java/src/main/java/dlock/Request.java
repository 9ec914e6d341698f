package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** The arguments of an acquiring command, except the owner. */
final class Request {
    enum Mode {
        EXCLUSIVE("WRITE"),
        READ("READ"),
        WRITE("WRITE"),
        PERMITS("READ"),
        /** A permit, with a number. */
        SLOT("READ");

        /** The name of the mode in {@code DLOCK.RELEASE} and {@code DLOCK.RENEW}. */
        final String side;

        Mode(String side) {
            this.side = side;
        }
    }

    /** The key, or the keys that are acquired together. */
    final List<String> names;
    final Mode mode;
    final Lease lease;
    /** The limit of a semaphore, else 0. */
    final long limit;
    final long permits;
    /** The replicas that must acknowledge a grant, or {@code null}. */
    final Replicas replicas;
    /** How long a wait without a limit looks for a server; 0: as long as the client does. */
    final long patienceMillis;
    final HoldTime time;

    private Request(
            List<String> names,
            Mode mode,
            Lease lease,
            long limit,
            long permits,
            Replicas replicas,
            long patienceMillis,
            HoldTime time) {
        if (names.contains("")) {
            throw new IllegalArgumentException("the name of a lock is empty");
        }
        this.names = names;
        this.mode = mode;
        this.lease = lease;
        this.limit = limit;
        this.permits = permits;
        this.replicas = replicas;
        this.patienceMillis = patienceMillis;
        this.time = time;
    }

    static Request lock(List<String> names, Mode mode, Lease lease) {
        return new Request(names, mode, lease, 0, 0, null, 0, HoldTime.ANY);
    }

    static Request permits(String name, long limit, long permits, Lease lease) {
        return new Request(List.of(name), Mode.PERMITS, lease, limit, permits, null, 0, HoldTime.ANY);
    }

    Request with(Lease other) {
        return new Request(names, mode, other, limit, permits, replicas, patienceMillis, time);
    }

    /** The same request for some of the names. */
    Request only(List<String> some) {
        return new Request(List.copyOf(some), mode, lease, limit, permits, replicas, patienceMillis, time);
    }

    Request with(Replicas other) {
        return new Request(names, mode, lease, limit, permits, other, patienceMillis, time);
    }

    Request with(Duration patience) {
        return new Request(names, mode, lease, limit, permits, replicas, Math.max(1, patience.toMillis()), time);
    }

    /** The same request for this number of permits. */
    Request of(long some) {
        return new Request(names, mode, lease, limit, some, replicas, patienceMillis, time);
    }

    /** The same request of a semaphore, for one permit with a number. */
    Request withSlot() {
        return new Request(names, Mode.SLOT, lease, limit, 1, replicas, patienceMillis, time);
    }

    Request with(HoldTime other) {
        return new Request(names, mode, lease, limit, permits, replicas, patienceMillis, other);
    }

    /** Returns the lease, cut to the longest time of the hold: the server refuses a longer one. */
    long leaseMillis() {
        return time.mostMillis == 0 ? lease.millis : Math.min(lease.millis, time.mostMillis);
    }

    /** Returns the lease of the grant. The lock stays for the least hold time even if the program dies. */
    long firstLeaseMillis() {
        return Math.max(leaseMillis(), time.leastMillis);
    }

    /**
     * Throws {@link IllegalArgumentException} if the session is of another client, if a lock of a session must stay for
     * a least time, or if this needs own connections and the backend has none.
     */
    void checkFor(Core core) {
        Backend backend = core.backend;
        if (lease.session != null && !lease.session.isOf(core)) {
            throw new IllegalArgumentException("the session is of another client");
        }
        if (time.leastMillis > 0 && (isSession() || lease.session != null)) {
            throw new IllegalArgumentException("a least time needs a lease without a session: its end frees its locks");
        }
        if ((isSession() || replicas != null) && !backend.hasOwnConnections()) {
            throw new IllegalArgumentException(isSession()
                    ? "a driver has no connections that a session could be bound to"
                    : "a driver has no connections on which replicas could be waited for");
        }
    }

    String first() {
        return names.get(0);
    }

    /**
     * Returns the acquiring command. {@code block} is the time to wait, as in {@link DedicatedConnection#request}.
     * {@code binds}: whether it binds the hold to the session, if the lease is one.
     */
    byte[][] acquire(String owner, String id, boolean binds, long block) {
        List<byte[]> words = new ArrayList<>();
        if (names.size() > 1) {
            words.addAll(Words.of("DLOCK.MACQUIRE", names.size()));
            words.addAll(Words.of(names.toArray()));
            words.addAll(Words.of(owner));
        } else {
            words.addAll(Words.of(commandName(), first(), owner));
        }
        if (mode == Mode.PERMITS || mode == Mode.SLOT) {
            words.addAll(mode == Mode.SLOT ? Words.of(limit, "SLOT") : Words.of(limit, "PERMITS", permits));
        }
        words.addAll(Words.of("PX", firstLeaseMillis()));
        if (time.mostMillis > 0) {
            words.addAll(Words.of("MAXHOLD", time.mostMillis));
        }
        if (block != DedicatedConnection.NOT_AT_ALL) {
            words.addAll(Words.of("BLOCK", block));
        }
        if (binds && isSession()) {
            words.addAll(Words.of("SESSION"));
        }
        if (binds && lease.session != null) {
            words.addAll(Words.of("SESSIONID", lease.session.id()));
        }
        words.addAll(Words.of("REQUEST", id));
        return words.toArray(new byte[0][]);
    }

    private String commandName() {
        switch (mode) {
            case EXCLUSIVE:
                return "DLOCK.RACQUIRE";
            case READ:
                return "DLOCK.RLOCK";
            case WRITE:
                return "DLOCK.WLOCK";
            default:
                return "DLOCK.SACQUIRE";
        }
    }

    /** Returns the limits of a wait that goes on until the lock is granted. */
    Limits unlimited(Core core) {
        return Limits.none(patience(core), System.nanoTime());
    }

    /** Returns the limits of a wait that lasts this long at most. */
    Limits limited(Core core, long nanos) {
        return Limits.of(nanos, patience(core), core.tryMillis, System.nanoTime());
    }

    /** Returns the limits of a wait that lasts this long at most. */
    Limits limited(Core core, Duration wait) {
        return Limits.of(wait, patience(core), core.tryMillis, System.nanoTime());
    }

    private long patience(Core core) {
        return patienceMillis == 0 ? core.patienceMillis : patienceMillis;
    }

    /** Whether the hold is bound to a connection. */
    boolean isSession() {
        return lease.kind == Lease.Kind.SESSION;
    }

    @Override
    public String toString() {
        return names.size() == 1 ? first() : names.toString();
    }
}
