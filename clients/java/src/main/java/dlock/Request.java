package dlock;

import java.util.ArrayList;
import java.util.List;

/** What is asked for: which locks, how, and for whom. */
final class Request {
    enum Mode {
        EXCLUSIVE("WRITE"),
        READ("READ"),
        WRITE("WRITE"),
        PERMITS("READ");

        /** How {@code DLOCK.RELEASE} and {@code DLOCK.RENEW} name it. */
        final String side;

        Mode(String side) {
            this.side = side;
        }
    }

    /** One, or several that are taken together. */
    final List<String> names;
    final Mode mode;
    final Lease lease;
    /** Of a semaphore, else 0. */
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

    /** The command that takes it. {@code block} as for {@link Line#request}. */
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
        if (block != Line.NOT_AT_ALL) {
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
