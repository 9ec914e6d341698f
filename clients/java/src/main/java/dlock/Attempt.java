package dlock;

import java.util.HashMap;
import java.util.Map;

/**
 * What an acquisition does next, and how it ends. It sends copies of one request, of which the server executes one; the
 * grant counts from the earliest copy that may have been granted. A grant that is older than a third of its lease is
 * renewed before anybody believes in it.
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

    /** What is left on a server, perhaps. */
    enum Cleanup {
        NONE,
        /** The request waits or is granted. */
        LEAVE,
        /** It was granted. */
        RELEASE
    }

    static final class Action {
        final Step step;
        /** Of {@link Step#WAIT}: the time to wait in ms, 0 without a limit. */
        final long block;
        /** Whether the last grant is over, so that this is a new request. */
        final boolean isFresh;
        /** Of {@link Step#GRANTED}: until when it is certain. */
        final long until;
        /** Of an end, and of the request before a new one. */
        final Cleanup cleanup;

        private Action(Step step, long block, boolean isFresh, long until, Cleanup cleanup) {
            this.step = step;
            this.block = block;
            this.isFresh = isFresh;
            this.until = until;
            this.cleanup = cleanup;
        }
    }

    private final Limits limits;
    private final long lease;
    /** The copies of the request without an answer, and the renewals of the grant: when each was sent. */
    private final Map<Integer, Long> open = new HashMap<>();
    private final Map<Integer, Long> renewals = new HashMap<>();
    private Step asked = Step.TRY;
    /** Whether a server has said that it does not grant. */
    private boolean isRefused;
    private boolean isGranted;
    /** When the granted request was sent. */
    private long since;
    private boolean isOver;

    Attempt(Limits limits, long lease) {
        this.limits = limits;
        this.lease = lease;
    }

    Action begin() {
        return action(Step.TRY, 0, false);
    }

    /** What the last action asked for is about to be sent. */
    void sent(int number, long now) {
        (asked == Step.CONFIRM ? renewals : open).put(number, now);
    }

    /** Returns whether an earlier copy of the request may still be executed. */
    boolean isOpen() {
        return !open.isEmpty();
    }

    /** Returns when the command was sent from which the lease of the grant counts. */
    long since() {
        return since;
    }

    Action granted(int number, long now) {
        if (isOver) {
            return null;
        }
        since = open.remove(number);
        open.values().forEach(sent -> since = Validity.earlier(since, sent));
        isGranted = true;
        return now - since <= lease / 3 && isCertain(now) ? end(Step.GRANTED) : action(Step.CONFIRM, now, false);
    }

    Action nil(int number, long now) {
        if (isOver) {
            return null;
        }
        open.remove(number);
        boolean waited = asked == Step.WAIT;
        isRefused = true;
        if (limits.isTry() || waited && open.isEmpty() && !limits.isEndless()) {
            return end(Step.REFUSED);
        }
        return limits.isLeft(now) ? action(Step.WAIT, now, false) : over(now);
    }

    /** An old program holds it, so it cannot be waited for: it is asked again. */
    Action held(int number, long now) {
        isRefused = true;
        return limits.isTry() ? nil(number, now) : refused(number, now);
    }

    /** The renewal that confirms the grant was executed. */
    Action ok(int number, long now) {
        if (isOver || !isGranted) {
            return null;
        }
        since = renewals.remove(number);
        return isCertain(now) ? end(Step.GRANTED) : action(Step.CONFIRM, now, false);
    }

    /** The grant is over. */
    Action gone(long now) {
        if (isOver || !isGranted) {
            return null;
        }
        isGranted = false;
        renewals.clear();
        Cleanup before = cleanup();
        open.clear();
        if (!limits.isLeft(now)) {
            return end(Step.REFUSED);
        }
        asked = limits.isTry() ? Step.TRY : Step.WAIT;
        return new Action(asked, limits.block(now), true, 0, before);
    }

    /** No answer: it may still be executed. */
    Action cut(long now) {
        return again(now);
    }

    /** It was not executed, and may be sent again. */
    Action refused(int number, long now) {
        open.remove(number);
        renewals.remove(number);
        return again(now);
    }

    /** It was not executed, and never will be. */
    Action error(int number) {
        open.remove(number);
        return isOver ? null : end(Step.FAILED);
    }

    /** The limit has passed. */
    Action over(long now) {
        if (isOver) {
            return null;
        }
        if (isGranted) {
            return end(isCertain(now) ? Step.GRANTED : Step.UNREACHABLE);
        }
        return end(isRefused && !limits.isEndless() ? Step.REFUSED : Step.UNREACHABLE);
    }

    Action cancel() {
        return isOver ? null : end(Step.CANCELED);
    }

    private Action again(long now) {
        if (isOver) {
            return null;
        }
        if (isGranted) {
            return action(Step.CONFIRM, now, false);
        }
        if (!limits.isLeft(now)) {
            return over(now);
        }
        return action(limits.isTry() || !isRefused ? Step.TRY : Step.WAIT, now, false);
    }

    private boolean isCertain(long now) {
        return until() - now > 0;
    }

    private long until() {
        return since + lease - Validity.GRAIN;
    }

    private Action action(Step step, long now, boolean isFresh) {
        asked = step;
        return new Action(step, step == Step.WAIT ? limits.block(now) : 0, isFresh, 0, Cleanup.NONE);
    }

    private Action end(Step step) {
        isOver = true;
        return new Action(step, 0, false, isGranted ? until() : 0, step == Step.GRANTED ? Cleanup.NONE : cleanup());
    }

    private Cleanup cleanup() {
        return isGranted ? Cleanup.RELEASE : open.isEmpty() ? Cleanup.NONE : Cleanup.LEAVE;
    }
}
