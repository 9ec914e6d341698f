package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A grant that nobody has yet, and the renewals that confirm it. */
final class Confirmation {
    final Request request;
    final Acquisition.Grant grant;
    private final HoldCommands commands;
    /** How often the named session had been opened before the request. */
    private final long openings;
    private final Thread thread;

    // Guarded by this.
    /** The hold; of a grant that no named session keeps, only from its outcome on. */
    private Hold hold;
    /** When it was asked how long it lasts, and for how long: a cap is shorter than the lease. 0: it was not asked. */
    private long asked;
    private long left;

    Confirmation(Request request, Acquisition.Grant grant, HoldCommands commands, long openings, Thread thread) {
        this.request = request;
        this.grant = grant;
        this.commands = commands;
        this.openings = openings;
        this.thread = thread;
    }

    /** Returns the hold, or {@code null} if there is none yet. */
    synchronized Hold hold() {
        return hold;
    }

    /** Makes it a hold, if it is none. */
    synchronized Hold asHold(Attempt attempt) {
        if (hold == null) {
            hold = new Hold(commands, grant, validity(attempt), attempt.since(), thread, openings);
        }
        return hold;
    }

    /** Returns until when it is certain; {@code null}: a named session says so. */
    private Validity validity(Attempt attempt) {
        if (request.lease.session != null) {
            return null;
        }
        long now = System.nanoTime();
        Validity validity = new Validity(nanos(request.firstLeaseMillis()), attempt.since(), attempt.isOpen(), now);
        if (asked != 0) {
            validity.asked(0, asked);
            validity.left(0, left, now);
        }
        return validity;
    }

    /**
     * Renews it, or asks for its cap if a named session keeps it. Completes with whether the server has it. Without an
     * answer after a part of the lease, fails with {@link Unanswered}.
     *
     * @param onOther on another connection than the shared one
     */
    CompletableFuture<Boolean> confirm(boolean onOther, Deadline giveUp, Attempt attempt) {
        if (request.lease.session != null) {
            return asHold(attempt).learnCap(giveUp);
        }
        long millis = request.firstLeaseMillis();
        long patience = TimeUnit.NANOSECONDS.toMillis(Heartbeat.patience(nanos(millis)))
                + (request.replicas == null ? 0 : request.replicas.millis);
        return Futures.within(commands.renewed(onOther, millis), patience, "no reply").thenCompose(reply ->
                reply != null && reply == Keeping.CUT
                        ? check(giveUp)
                        : CompletableFuture.completedFuture(reply != null));
    }

    private CompletableFuture<Boolean> check(Deadline giveUp) {
        long now = System.nanoTime();
        return commands.check(giveUp).thenApply(reply -> {
            synchronized (this) {
                asked = now;
                left = reply == null ? 0 : nanos(reply);
            }
            return reply != null;
        });
    }

    private static long nanos(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }
}
