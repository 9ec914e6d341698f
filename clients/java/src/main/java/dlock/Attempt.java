package dlock;

import java.util.HashMap;
import java.util.Map;

/**
 * Decides the next step of an acquisition, and how it ends. An acquisition sends copies of one request, of which the
 * server executes one; the grant counts from the earliest copy that may have been granted. If more than a third of the
 * lease has passed since then, or if a cap may have cut it, the grant is renewed before the caller gets it.
 *
 * <p>Times are those of one clock that only goes forward, in nanoseconds. The rules are those of
 * {@code tests/clients/histories}.
 */
final class Attempt {
    enum Step {
        /** Send the request. It does not wait. */
        TRY,
        /** Send the request. It waits in the queue. */
        WAIT,
        /** Renew the grant. */
        CONFIRM,
        GRANTED,
        REFUSED,
        UNREACHABLE,
        CANCELED,
        FAILED
    }

    /** The rest that the acquisition may have left on a server. */
    enum Cleanup {
        NONE,
        /** A copy of the request may wait or be granted. */
        LEAVE,
        /** The request was granted. */
        RELEASE
    }

    static final class Action {
        final Step step;
        /** How long the request of {@link Step#WAIT} waits, in ms. 0: without a limit. */
        final long block;
        /** Whether the last grant is over, so that this is a new request. */
        final boolean isFresh;
        /** The time until which {@link Step#GRANTED} is certain. */
        final long until;
        /** The cleanup after an end or, if {@link #isFresh}, after the request whose grant is over. */
        final Cleanup cleanup;

        private Action(Step step, long block, boolean isFresh, long until, Cleanup cleanup) {
            this.step = step;
            this.block = block;
            this.isFresh = isFresh;
            this.until = until;
            this.cleanup = cleanup;
        }
    }

    private enum Kind {
        TRY,
        WAIT,
        RENEWAL
    }

    /** A command that has no answer yet. */
    private static final class Command {
        final Kind kind;
        final long sent;
        /** Whether the command belongs to a request whose grant is over. */
        boolean isOld;

        Command(Kind kind, long sent) {
            this.kind = kind;
            this.sent = sent;
        }

        boolean isCopy() {
            return kind != Kind.RENEWAL;
        }
    }

    private final Limits limits;
    private final long lease;
    /** Whether a grant counts only after the renewal that confirms it: a cap may have cut its lease. */
    private final boolean mayBeCut;
    private final Map<Integer, Command> open = new HashMap<>();
    /** The command that the last action asks for. */
    private Kind asked = Kind.TRY;
    /** Whether a server has said that it does not grant. */
    private boolean isRefused;
    private boolean isGranted;
    /** Whether the lease of the grant is known not to be cut, or until when it is. */
    private boolean isKnown;
    /** The time from which the lease of the grant counts: a command was sent then. */
    private long since;
    /** Whether a cap has cut the renewal that confirms the grant, and when the grant ends because of that. */
    private boolean isCapped;
    private long cap;
    private boolean isOver;

    Attempt(Limits limits, long lease) {
        this(limits, lease, false);
    }

    /** {@code mayBeCut}: the owner may have another hold, whose cap counts for the grant, too. The grant does not say so. */
    Attempt(Limits limits, long lease, boolean mayBeCut) {
        this.limits = limits;
        this.lease = lease;
        this.mayBeCut = mayBeCut;
    }

    Action begin() {
        return asks(0, false);
    }

    /** Notes that the command of the last action is about to be sent. Its answer comes with the same number. */
    void sends(int number, long now) {
        open.put(number, new Command(asked, now));
    }

    /** Returns whether a copy of the request, or a renewal of its grant, has no answer and may still be executed. */
    boolean isOpen() {
        return open.values().stream().anyMatch(command -> !command.isOld);
    }

    long since() {
        return since;
    }

    // The events. Each returns what follows. Null: nothing, because the answer does not matter any more.

    Action granted(int number, long now) {
        Command command = close(number);
        if (command == null || isGranted) {
            return null;
        }
        since = command.sent;
        open.values().stream().filter(copy -> copy.isCopy() && !copy.isOld)
                .forEach(copy -> since = Validity.earlier(since, copy.sent));
        isGranted = true;
        isKnown = !mayBeCut;
        return now - since <= lease / 3 && isCertain(now) ? end(Step.GRANTED) : confirm();
    }

    Action nil(int number, long now) {
        Command command = close(number);
        if (command == null) {
            return null;
        }
        isRefused = true;
        if (isGranted) {
            return null;
        }
        // If another copy is open, it has taken this copy's place in the queue: the nil is not the request's answer.
        boolean isAnswer = command.kind == Kind.WAIT && !isOpen();
        return limits.isTry() || isAnswer || !limits.isLeft(now) ? end(Step.REFUSED) : asks(now, false);
    }

    /** A program without dlock has the lock. The server has no queue for such a lock, so the request is repeated. */
    Action held(int number, long now) {
        if (close(number) == null) {
            return null;
        }
        isRefused = true;
        // The renewal of a grant tells whether the grant is still there.
        return isGranted ? null : limits.isTry() ? end(Step.REFUSED) : again(now);
    }

    /** The renewal that confirms the grant was executed. */
    Action ok(int number, long now) {
        Command command = close(number);
        if (command == null) {
            return null;
        }
        isCapped = false;
        return confirmed(command, now);
    }

    /** The renewal that confirms the grant was executed, but cut by a cap: the grant is certain until then at most. */
    Action capped(int number, long until, long now) {
        Command command = close(number);
        if (command == null) {
            return null;
        }
        isCapped = true;
        cap = until;
        return confirmed(command, now);
    }

    private Action confirmed(Command command, long now) {
        since = Validity.later(since, command.sent);
        isKnown = true;
        return isCertain(now) ? end(Step.GRANTED) : confirm();
    }

    /** The renewal that confirms the grant was answered nil: the grant is over. */
    Action gone(int number, long now) {
        if (close(number) == null) {
            return null;
        }
        isGranted = false;
        isCapped = false;
        isRefused = true;
        open.values().forEach(command -> command.isOld = true);
        return limits.isLeft(now) ? asks(now, true) : end(Step.REFUSED);
    }

    /** A command got no answer. It may still be executed. */
    Action cut(long now) {
        return isOver ? null : again(now);
    }

    /**
     * A copy of the request got no answer. If the server executes it later, it binds the hold to the connection of the
     * copy, whose end releases the hold. The next request is a new one.
     */
    Action orphaned(long now) {
        if (isOver || isGranted || !limits.isLeft(now)) {
            return cut(now);
        }
        open.values().forEach(command -> command.isOld = true);
        return asks(now, true);
    }

    /** Takes the answer that the command was not executed, and may be sent again. */
    Action refused(int number, long now) {
        open.remove(number);
        return isOver ? null : again(now);
    }

    /** Takes the answer that the command was not executed, and never will be. {@code number}: 0 if it was not sent. */
    Action failed(int number) {
        Command command = open.remove(number);
        boolean isOld = command != null && command.isOld;
        return isOver || isOld ? null : end(Step.FAILED);
    }

    /** The time for the acquisition is over. */
    Action over(long now) {
        if (isOver) {
            return null;
        }
        if (isGranted) {
            return end(isCertain(now) ? Step.GRANTED : Step.UNREACHABLE);
        }
        return end(isRefused && !limits.isEndless() ? Step.REFUSED : Step.UNREACHABLE);
    }

    Action canceled() {
        return isOver ? null : end(Step.CANCELED);
    }

    /** Notes an answer. Returns its command, or {@code null} if the answer does not matter any more. */
    private Command close(int number) {
        Command command = open.remove(number);
        return isOver || command == null || command.isOld ? null : command;
    }

    private Action again(long now) {
        if (!limits.isLeft(now)) {
            return over(now);
        }
        return isGranted ? confirm() : asks(now, false);
    }

    private Action asks(long now, boolean isFresh) {
        boolean waits = !limits.isTry() && isRefused;
        asked = waits ? Kind.WAIT : Kind.TRY;
        return new Action(waits ? Step.WAIT : Step.TRY, waits ? limits.block(now) : 0, isFresh, 0,
                isFresh ? cleanup() : Cleanup.NONE);
    }

    private Action confirm() {
        asked = Kind.RENEWAL;
        return new Action(Step.CONFIRM, 0, false, 0, Cleanup.NONE);
    }

    private Action end(Step step) {
        isOver = true;
        return new Action(step, 0, false, isGranted ? until() : 0, step == Step.GRANTED ? Cleanup.NONE : cleanup());
    }

    private boolean isCertain(long now) {
        return isKnown && until() - now > 0;
    }

    /** Returns the time until which the grant is certain. */
    long until() {
        long end = since + lease - Validity.GRAIN;
        return isCapped ? Validity.earlier(cap, end) : end;
    }

    private Cleanup cleanup() {
        return isGranted ? Cleanup.RELEASE
                : open.values().stream().anyMatch(Command::isCopy) ? Cleanup.LEAVE : Cleanup.NONE;
    }
}
