package dlock;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Until when a hold is certain. Every command that sets its lease counts from the moment before it was sent, and of
 * several that the server may execute in any order, the shortest counts.
 *
 * <p>Times are those of one clock that only goes forward, in nanoseconds. The rules are those of
 * {@code tests/clients/histories}.
 */
final class Validity {
    /** The server and the client count whole milliseconds. */
    static final long GRAIN = TimeUnit.MILLISECONDS.toNanos(2);

    private enum State {
        HELD,
        RELEASED,
        LOST
    }

    /** A command that sets the lease, and has no answer. */
    private static final class Command {
        final long sent;
        final long lease;

        Command(long sent, long lease) {
            this.sent = sent;
            this.lease = lease;
        }
    }

    /** The most commands without an answer that are told apart; the oldest of more are not. */
    private static final int MOST_OPEN = 16;

    private final Map<Integer, Command> open = new HashMap<>();
    /** Whether something else that sets the lease may still be executed: a copy of the acquisition, or an old command. */
    private boolean isOpenForGood;
    /** By the number of a {@code CHECK}: when it was sent; how many commands were sent before (-1: one is open). */
    private final Map<Integer, long[]> asked = new HashMap<>();
    private long commands;
    /** The shortest lease of the commands since the last time when none was open. */
    private long shortest;
    private long sure;
    private long until;
    private State state = State.HELD;

    /** {@code isAskedTwice}: an earlier copy of the acquisition may still be executed. */
    Validity(long lease, long sent, boolean isAskedTwice, long now) {
        this.isOpenForGood = isAskedTwice;
        shortest = lease;
        sure = lease;
        until = sent + lease - GRAIN;
        passes(now);
    }

    /** The lease ends by this time: a cap has cut it. */
    void endsBy(long time, long now) {
        until = earlier(until, time);
        passes(now);
    }

    /** Returns until when the hold is certain. */
    long until() {
        return until;
    }

    /** Returns a lease such that the server has no shorter one. */
    long sure() {
        return sure;
    }

    boolean isLost() {
        return state == State.LOST;
    }

    boolean isReleased() {
        return state == State.RELEASED;
    }

    /** Time has passed. Returns whether the lock is held. */
    boolean passes(long now) {
        if (state == State.HELD && until - now <= 0) {
            state = State.LOST;
        }
        return state == State.HELD;
    }

    /** A command that sets this lease is about to be sent. */
    void sends(int number, long lease, long now) {
        if (!passes(now)) {
            return;
        }
        shortest = isOpen() ? Math.min(shortest, lease) : lease;
        open.put(number, new Command(now, lease));
        if (open.size() > MOST_OPEN) {
            open.remove(Collections.min(open.keySet()));
            isOpenForGood = true;
        }
        commands++;
        sure = Math.min(sure, lease);
        until = earlier(until, now + lease - GRAIN);
        passes(now);
    }

    /** Takes the answer that it was executed. Returns when it was sent. */
    long ok(int number, long now) {
        Command command = open.remove(number);
        if (command == null || !passes(now)) {
            return now;
        }
        sure = shortest;
        until = later(until, command.sent + sure - GRAIN);
        return command.sent;
    }

    /** Takes the answer that it was not executed, or for a shorter time than it asked for. */
    void refused(int number, long now) {
        open.remove(number);
        passes(now);
    }

    /** A {@code CHECK} is about to be sent. */
    void asks(int number, long now) {
        passes(now);
        asked.put(number, new long[] {now, isOpen() ? -1 : commands});
        if (asked.size() > MOST_OPEN) {
            asked.remove(Collections.min(asked.keySet()));
        }
    }

    /** The answer to a {@code CHECK}: the server has the hold for so long. */
    void left(int number, long left, long now) {
        long[] at = asked.remove(number);
        if (at == null || !passes(now)) {
            return;
        }
        // If no command was open or sent meanwhile, the answer may also say that the hold ends earlier than assumed.
        until = at[1] == commands && !isOpen()
                ? at[0] + left - GRAIN
                : later(until, at[0] + Math.min(left, sure) - GRAIN);
        passes(now);
    }

    /** The server has a lease of at least this, unless a shorter one is on its way. */
    void raised(long lease) {
        if (!isOpen()) {
            sure = Math.max(sure, lease);
        }
    }

    /** The server has no such hold, or it cannot be kept. */
    void gone() {
        state = state == State.HELD ? State.LOST : state;
    }

    void release(long now) {
        state = passes(now) ? State.RELEASED : state;
    }

    /** Returns whether a command that sets the lease has no answer: the server may still execute it. */
    boolean isOpen() {
        return isOpenForGood || !open.isEmpty();
    }

    static long earlier(long one, long other) {
        return one - other < 0 ? one : other;
    }

    static long later(long one, long other) {
        return one - other > 0 ? one : other;
    }
}
