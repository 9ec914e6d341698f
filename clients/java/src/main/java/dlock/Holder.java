package dlock;

import java.time.Instant;
import java.util.List;
import java.util.Objects;

/** The holder of a lock. Of several readers, the one that has held it for the longest time. */
public final class Holder {
    private final String owner;
    private final long token;

    Holder(String owner, long token) {
        this.owner = owner;
        this.token = token;
    }

    /** Returns the owner name. */
    public String owner() {
        return owner;
    }

    /** Returns the fencing token. */
    public long fencingToken() {
        return token;
    }

    /** Returns the time of the grant, by the server's clock. The token contains it. */
    public Instant since() {
        return Instant.ofEpochSecond(token / 1_000_000, token % 1_000_000 * 1000);
    }

    static byte[][] question(String name) {
        return Words.command("DLOCK.INFO", name, "FULL", "COUNT", 1);
    }

    /** Reads the reply to the question. Returns {@code null} if the lock is free. */
    static Holder of(Object reply) {
        List<?> holds = (List<?>) field(reply, "holds");
        if (holds == null || holds.isEmpty()) {
            return null;
        }
        Object first = holds.get(0);
        return new Holder(Words.text(field(first, "owner")), Words.number(field(first, "token")));
    }

    /** Returns the milliseconds to the end of the last lease; 0 if the lock is free. */
    static long millisLeft(Object reply) {
        Object left = field(reply, "ttl");
        return left == null ? 0 : Words.number(left);
    }

    static Object field(Object reply, String name) {
        List<?> fields = reply instanceof List ? (List<?>) reply : List.of();
        for (int i = 0; i + 1 < fields.size(); i += 2) {
            if (Words.text(fields.get(i)).equals(name)) {
                return fields.get(i + 1);
            }
        }
        return null;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Holder && ((Holder) other).token == token && ((Holder) other).owner.equals(owner);
    }

    @Override
    public int hashCode() {
        return Objects.hash(owner, token);
    }

    @Override
    public String toString() {
        return owner + ", token " + token;
    }
}
