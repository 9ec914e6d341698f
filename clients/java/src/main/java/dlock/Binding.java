package dlock;

/**
 * Whether a session keeps a hold, and until when the hold is certain. A bound hold is certain for as long as its
 * session. A hold that is not bound any more is certain for as long as the session was when the binding ended. A cap of
 * the hold limits both.
 *
 * <p>Times are those of one clock that only goes forward, in nanoseconds.
 */
final class Binding {
    private boolean isUnbound;
    private long certain;
    private boolean hasCap;
    private long cap;
    private boolean isCapKnown;

    /** The server has no such binding, or may have none: the session was opened again, or the hold is on another node. */
    void unbind(long until) {
        if (!isUnbound) {
            isUnbound = true;
            certain = until;
        }
    }

    /** The server has bound the hold again. A hold that is not certain any more stays lost. */
    void bind(long now) {
        isUnbound = hasEnded(now);
    }

    boolean isUnbound() {
        return isUnbound;
    }

    /** No cap ends the hold before this time. Until the cap is known, the hold is not certain beyond this time. */
    void capNotBefore(long time) {
        if (!isCapKnown) {
            hasCap = true;
            cap = time;
        }
    }

    /** The server has said when the cap is. {@code has}: whether there is one. */
    void capIs(boolean has, long time) {
        isCapKnown = true;
        hasCap = has;
        cap = time;
    }

    /** Returns whether the cap has to be asked for, to know it at this time. */
    boolean needsCap(long time) {
        return !isCapKnown && isCapped(time);
    }

    /** Returns until when the hold is certain, if its session is certain until {@code session}. */
    long until(long session) {
        long end = isUnbound ? Validity.earlier(certain, session) : session;
        return hasCap ? Validity.earlier(cap, end) : end;
    }

    /** Returns whether the hold was not bound again in time. */
    boolean hasEnded(long now) {
        return isUnbound && certain - now <= 0;
    }

    boolean isCapped(long now) {
        return hasCap && cap - now <= 0;
    }
}
