package dlock;

import java.util.concurrent.TimeUnit;

/**
 * When a hold is renewed: a third of its lease after the last successful renewal was sent. A renewal without an answer
 * is given up after a sixth of the lease, and sent again on another connection.
 *
 * <p>The methods are events, which they pass on to {@link Validity}. The rules are those of
 * {@code tests/clients/histories}. Times are in nanoseconds.
 */
final class Heartbeat {
    /** The next thing to do. */
    enum Next {
        /** Renew the hold. */
        RENEW,
        /** Give up the renewal that is on its way. */
        GIVE_UP,
        /** Ask how long the hold lasts: a cap has cut the renewal. */
        CHECK,
        /** Nothing: the hold is not renewed, or not any more. */
        NOTHING
    }

    /** The least and the most time that a renewal waits for its answer. */
    private static final long SHORTEST_ANSWER = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long LONGEST_ANSWER = TimeUnit.MILLISECONDS.toNanos(2000);
    /** The least and the most time between a renewal that failed and the next one. */
    private static final long SHORTEST_PAUSE = TimeUnit.MILLISECONDS.toNanos(10);
    private static final long LONGEST_PAUSE = TimeUnit.MILLISECONDS.toNanos(500);

    private final Validity validity;
    private final boolean renews;
    /** The lease that the last command asked for. */
    private long wanted;
    private boolean isCapped;
    private Next next;
    /** When {@link #next} is due. */
    private long at;

    /** {@code sent}: when the grant was asked for. {@code renews}: whether the client renews the hold. */
    Heartbeat(Validity validity, long lease, long sent, boolean renews, long now) {
        this.validity = validity;
        this.renews = renews;
        this.wanted = lease;
        is(Next.RENEW, sent + lease() / 3, now);
    }

    Validity validity() {
        return validity;
    }

    Next next() {
        return next;
    }

    /** Returns when the next thing to do is due. */
    long at() {
        return at;
    }

    void sends(int number, long lease, long now) {
        wanted = lease;
        validity.sends(number, lease, now);
        is(Next.GIVE_UP, now + answerWithin(lease()), now);
    }

    void ok(int number, long now) {
        long sent = validity.ok(number, now);
        is(Next.RENEW, sent + lease() / 3, now);
    }

    /** The renewal has no answer, and may still be executed. */
    void cut(long now) {
        validity.passes(now);
        pause(now);
    }

    /** Takes the answer that the renewal was not executed. */
    void refused(int number, long now) {
        validity.refused(number, now);
        pause(now);
    }

    /** A cap has cut the renewal. */
    void capped(int number, long now) {
        validity.refused(number, now);
        isCapped = true;
        is(Next.CHECK, now, now);
    }

    void asks(int number, long now) {
        validity.asks(number, now);
        if (next == Next.CHECK) {
            is(Next.NOTHING, validity.until(), now);
        }
    }

    void left(int number, long left, long now) {
        validity.left(number, left, now);
        is(isCapped ? Next.NOTHING : next, at, now);
        isCapped = false;
    }

    /** A question is about to be sent to a server that renews the hold itself: whether it still does. */
    void looks(long now) {
        is(Next.GIVE_UP, now + answerWithin(lease()), now);
    }

    /** Takes the answer to the question that was sent at {@code sent}: the server has the hold. */
    void looked(long sent, long now) {
        is(Next.RENEW, sent + lease() / 3, now);
    }

    /** Makes the next renewal due at once. */
    void hurry(long now) {
        is(Next.RENEW, now, now);
    }

    private void pause(long now) {
        long pause = Math.min(lease() / 30, (validity.until() - now) / 8);
        is(Next.RENEW, now + Math.max(SHORTEST_PAUSE, Math.min(pause, LONGEST_PAUSE)), now);
    }

    /** Sets what is due next: at {@code when}, not after the end of the hold, and at once if that time has passed. */
    private void is(Next what, long when, long now) {
        next = renews ? what : Next.NOTHING;
        at = Validity.later(now, Validity.earlier(when, validity.until()));
    }

    /** Returns the lease that the times of renewals are computed from. */
    private long lease() {
        return Math.min(wanted, validity.sure());
    }

    /** Returns how long a renewal of this lease waits for its answer. */
    static long answerWithin(long lease) {
        return Math.max(SHORTEST_ANSWER, Math.min(lease / 6, LONGEST_ANSWER));
    }
}
