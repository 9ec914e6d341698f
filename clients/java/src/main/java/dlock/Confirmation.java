package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A grant that the caller does not have yet, and the renewals that confirm it. */
final class Confirmation {
    /** The server's answer: whether it has a grant, and for how long. */
    static final class Answer {
        /** The server has the grant, for the whole lease. */
        static final Answer WHOLE = new Answer(true, false, 0);
        static final Answer GONE = new Answer(false, false, 0);

        final boolean isThere;
        /** Whether a cap has cut the renewal, and until when the grant is certain then. */
        final boolean isCapped;
        final long until;

        private Answer(boolean isThere, boolean isCapped, long until) {
            this.isThere = isThere;
            this.isCapped = isCapped;
            this.until = until;
        }

        private static Answer of(boolean isThere) {
            return isThere ? WHOLE : GONE;
        }
    }

    final Request request;
    final Acquisition.Grant grant;
    private final HoldCommands commands;
    /** How often the named session had been opened before the request. */
    private final long openings;
    private final Thread thread;
    /** Whether another copy of the request may still be executed. */
    private final boolean isCopied;

    // Guarded by this.
    /** The hold. A grant without a named session becomes one when the caller gets it. */
    private Hold hold;

    Confirmation(Request request, Acquisition.Grant grant, HoldCommands commands, long openings, Thread thread,
            boolean isCopied) {
        this.request = request;
        this.grant = grant;
        this.commands = commands;
        this.openings = openings;
        this.thread = thread;
        this.isCopied = isCopied;
    }

    /** Returns the hold, or {@code null} if there is none yet. */
    synchronized Hold hold() {
        return hold;
    }

    /** Makes the grant a hold, unless it is one. */
    synchronized Hold asHold(Attempt attempt) {
        if (hold == null) {
            hold = new Hold(commands, grant, validity(attempt), attempt.since(), thread, openings);
            if (isCopied) {
                hold.mayBeEnteredLate();
            }
        }
        return hold;
    }

    /** Returns until when the grant is certain; {@code null}: for as long as its named session lasts. */
    private Validity validity(Attempt attempt) {
        if (request.lease.session != null) {
            return null;
        }
        long now = System.nanoTime();
        Validity validity = new Validity(nanos(request.firstLeaseMillis()), attempt.since(), attempt.isOpen(), now);
        validity.endsBy(attempt.until(), now);
        return validity;
    }

    /**
     * Renews the grant, or asks for its cap if a named session keeps it. Without an answer after a part of the lease,
     * fails with {@link Unanswered}.
     *
     * @param onOther on another connection than the shared one
     */
    CompletableFuture<Answer> confirm(boolean onOther, Deadline giveUp, Attempt attempt) {
        if (request.lease.session != null) {
            return asHold(attempt).learnCap(giveUp).thenApply(Answer::of);
        }
        long millis = request.firstLeaseMillis();
        long within = TimeUnit.NANOSECONDS.toMillis(Heartbeat.answerWithin(nanos(millis)))
                + (request.replicas == null ? 0 : request.replicas.millis);
        return Futures.within(commands.renewed(onOther, millis), within, "no reply").thenCompose(reply ->
                reply != null && reply == Keeping.CUT
                        ? check(giveUp)
                        : CompletableFuture.completedFuture(Answer.of(reply != null)));
    }

    private CompletableFuture<Answer> check(Deadline giveUp) {
        long asked = System.nanoTime();
        return commands.check(giveUp).thenApply(left ->
                left == null ? Answer.GONE : new Answer(true, true, asked + nanos(left) - Validity.GRAIN));
    }

    private static long nanos(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }
}
