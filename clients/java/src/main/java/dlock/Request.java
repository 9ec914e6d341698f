package dlock;

import java.util.ArrayList;
import java.util.List;

/** The arguments of an acquiring command, except the owner. */
final class Request {
    enum Mode {
        EXCLUSIVE("WRITE"),
        READ("READ"),
        WRITE("WRITE"),
        PERMITS("READ");

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

    private Request(List<String> names, Mode mode, Lease lease, long limit, long permits) {
        this.names = names;
        this.mode = mode;
        this.lease = lease;
        this.limit = limit;
        this.permits = permits;
    }

    static Request lock(List<String> names, Mode mode, Lease lease) {
        return new Request(names, mode, lease, 0, 0);
    }

    static Request permits(String name, long limit, long permits, Lease lease) {
        return new Request(List.of(name), Mode.PERMITS, lease, limit, permits);
    }

    String first() {
        return names.get(0);
    }

    /** Returns the acquiring command. {@code block} is the time to wait, as in {@link DedicatedConnection#request}. */
    byte[][] acquire(String owner, String id, boolean session, long block) {
        List<byte[]> words = new ArrayList<>();
        if (names.size() > 1) {
            words.addAll(Words.of("DLOCK.MACQUIRE", names.size()));
            words.addAll(Words.of(names.toArray()));
            words.addAll(Words.of(owner));
        } else {
            words.addAll(Words.of(commandName(), first(), owner));
        }
        if (mode == Mode.PERMITS) {
            words.addAll(Words.of(limit, "PERMITS", permits));
        }
        words.addAll(Words.of("PX", lease.millis));
        if (block != DedicatedConnection.NOT_AT_ALL) {
            words.addAll(Words.of("BLOCK", block));
        }
        if (session) {
            words.addAll(Words.of("SESSION"));
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

    boolean isSession() {
        return lease.kind == Lease.Kind.SESSION;
    }

    @Override
    public String toString() {
        return names.size() == 1 ? first() : names.toString();
    }
}
