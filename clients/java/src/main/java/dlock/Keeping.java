package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Keeps a hold alive until its release or loss: does what its {@link Heartbeat} says, and passes the answers on. */
final class Keeping {
    /** The reply to a renewal that a cap has cut: the hold lasts for less than was asked. */
    static final long CUT = 0;

    private final Hold hold;
    private final Core core;
    private final Request request;
    private final HoldCommands commands;
    /** Supplies the connection that the hold is bound to now, or {@code null}. */
    private final Supplier<DedicatedConnection> connection;
    /** The named session that keeps the hold, or {@code null}. */
    private final Session session;
    /** The hold as the named session knows it; {@code null} without one. */
    private final Bound bound;

    // Guarded by this. The hold calls methods of this class while it holds its own monitor. Therefore no method of the
    // hold that needs that monitor is called while this one is held.
    /** Until when the hold is certain, and when it is renewed; {@code null}: a named session keeps the hold. */
    private final Heartbeat beat;
    /** The lease that the next renewal asks for. */
    private long leaseNanos;
    /** The number of the last command that concerns the lease. */
    private int number;
    /** Whether the last renewal had no answer, so that the next one is sent on another connection. */
    private boolean isOnOther;
    private boolean isOver;
    private Timer.Task timer;

    /**
     * {@code validity}: until when the hold is certain; {@code null}: a named session keeps the hold. {@code since}:
     * when the command was sent that gave the hold its lease.
     */
    Keeping(Hold hold, HoldCommands commands, Bound bound, Validity validity, long since,
            Supplier<DedicatedConnection> connection) {
        this.hold = hold;
        this.core = commands.core;
        this.request = commands.request;
        this.commands = commands;
        this.connection = connection;
        this.bound = bound;
        this.session = request.lease.session;
        this.leaseNanos = TimeUnit.MILLISECONDS.toNanos(request.leaseMillis());
        boolean renews = request.lease.kind != Lease.Kind.FIXED;
        this.beat = validity == null ? null : new Heartbeat(validity, leaseNanos, since, renews, System.nanoTime());
    }

    /** Returns until when the lock is certainly held. */
    long until() {
        if (session != null) {
            return bound.keeper().until(bound);
        }
        synchronized (this) {
            return beat.validity().until();
        }
    }

    /** Returns whether a renewal of a hold without a named session has no answer: the server may still execute it. */
    synchronized boolean isRenewalOpen() {
        return session == null && beat.validity().isOpen();
    }

    synchronized void start() {
        schedule();
    }

    /** Ends the keeping: the hold is released or lost. */
    synchronized void end() {
        isOver = true;
        stop();
    }

    /** Sets the lease that the next renewals ask for. */
    synchronized void wants(long millis) {
        leaseNanos = TimeUnit.MILLISECONDS.toNanos(millis);
        schedule();
    }

    /**
     * Notes that the hold was entered again with a lease of {@code nanos}, by a command sent at {@code sent}. Returns
     * false if nobody renews the hold and a cap may have cut the lease: the server has to be asked how long it lasts.
     */
    synchronized boolean raised(long sent, long nanos) {
        if (isOver || session != null) {
            return true;
        }
        leaseNanos = Math.max(leaseNanos, nanos);
        beat.validity().raised(nanos);
        // With replicas, the longer lease does not count until they acknowledge it, so there is nothing to ask.
        return request.lease.kind != Lease.Kind.FIXED || request.replicas != null
                || beat.validity().until() - sent >= nanos;
    }

    /** Schedules {@link #tick} for what is due next. The caller holds the monitor. */
    private void schedule() {
        stop();
        if (!isOver) {
            long left = until() - System.nanoTime();
            // A named session renews the hold. The tick then only sees whether the hold's thread has ended.
            long due = session != null ? leaseNanos / 3
                    : beat.next() == Heartbeat.Next.NOTHING ? left
                    : beat.at() - System.nanoTime();
            timer = core.schedule(this::tick, Math.min(due, left));
        }
    }

    private void stop() {
        if (timer != null) {
            timer.cancel();
            timer = null;
        }
    }

    private void tick() {
        boolean lapsed;
        Heartbeat.Next due = Heartbeat.Next.NOTHING;
        synchronized (this) {
            if (isOver) {
                return;
            }
            long now = System.nanoTime();
            lapsed = until() - now <= 0;
            if (session == null && beat.at() - now <= 0) {
                due = beat.next();
            }
        }
        if (lapsed) {
            hold.lose(session == null
                    ? "its lease ended"
                    : "its session was not confirmed in time, or its cap was reached", null);
            return;
        }
        if (request.lease.kind != Lease.Kind.FIXED && hold.isOfDeadThread()) {
            // The thread ended without unlocking.
            hold.releaseAsync();
            return;
        }
        switch (due) {
            case RENEW:
                keepAlive();
                break;
            case GIVE_UP:
                cut();
                break;
            case CHECK:
                checkCap();
                break;
            default:
        }
        synchronized (this) {
            schedule();
        }
    }

    /**
     * Renews the hold. The server itself renews the hold of a connection's session, so the client only asks whether it
     * has the hold. If replicas must acknowledge renewals, the client renews this hold, too.
     */
    private void keepAlive() {
        long millis;
        boolean isOther;
        synchronized (this) {
            millis = Math.max(TimeUnit.NANOSECONDS.toMillis(leaseNanos), hold.staysMillis());
            isOther = isOnOther;
        }
        DedicatedConnection own = isOther ? null : connection.get();
        if (request.isSession() && request.replicas == null) {
            look(own);
            return;
        }
        CompletableFuture<Long> renewal;
        int copy = sends(millis);
        renewal = own != null ? commands.renew(own, millis) : commands.renewed(isOther, millis);
        answers(copy, renewal).whenComplete((ok, failed) -> {
            if (failed == null && ok == null) {
                hold.lose("the server has no such hold", null);
            } else if (failed != null) {
                loseUnlessForNow(Futures.cause(failed));
            }
        });
    }

    /** Asks whether the server has the hold: on the connection that the hold is bound to, or on the shared one. */
    private void look(DedicatedConnection own) {
        long sent;
        synchronized (this) {
            sent = System.nanoTime();
            beat.looks(sent);
        }
        looked(() -> commands.check(own)).whenComplete((left, failed) -> {
            synchronized (this) {
                if (failed == null) {
                    isOnOther = false;
                    beat.looked(sent, System.nanoTime());
                    schedule();
                }
            }
            if (failed != null) {
                cut();
                loseUnlessForNow(Futures.cause(failed));
            }
        });
    }

    /** Asks how long the hold lasts, because a cap has cut a renewal. */
    private void checkCap() {
        looked(() -> commands.check(core.patience())).whenComplete((left, failed) -> {
            if (failed != null) {
                cut();
            }
        });
    }

    /** Gives the hold up after a failed renewal, unless the next one may succeed. */
    private void loseUnlessForNow(Throwable reason) {
        boolean isForNow = Unanswered.mayRepeat(reason) || Unanswered.writesNothing(reason)
                || reason instanceof UnavailableException || reason instanceof TooFewReplicasException;
        if (!isForNow) {
            hold.lose("it cannot be renewed", reason);
        }
    }

    /** Binds the hold to another connection. */
    CompletableFuture<Long> bind(DedicatedConnection at) {
        long millis;
        synchronized (this) {
            millis = TimeUnit.NANOSECONDS.toMillis(leaseNanos);
        }
        return copy(millis, () -> commands.bind(at, millis));
    }

    /** Notes that the last command has no answer. The next one is sent on another connection. */
    private synchronized void cut() {
        if (!isOver) {
            isOnOther = true;
            beat.cut(System.nanoTime());
            schedule();
        }
    }

    /**
     * Notes a renewal that is about to be sent. If its lease is shorter, the hold is certain only for that long from
     * now on, because the server may execute the renewal before its answer is read.
     */
    private synchronized int sends(long millis) {
        number++;
        if (session == null) {
            beat.sends(number, TimeUnit.MILLISECONDS.toNanos(millis), System.nanoTime());
            schedule();
        }
        return number;
    }

    /** Notes one copy of a renewal, then sends it. */
    CompletableFuture<Long> copy(long millis, Supplier<CompletableFuture<Long>> renewal) {
        int copy = sends(millis);
        return answers(copy, renewal.get());
    }

    private CompletableFuture<Long> answers(int copy, CompletableFuture<Long> renewal) {
        return renewal.whenComplete((ok, failed) -> answered(copy, ok, Futures.cause(failed)));
    }

    /**
     * Notes the outcome of one copy of a renewal. Of several names, some may be renewed even if the copy fails with an
     * error of the server; the copy then counts as unanswered.
     */
    private synchronized void answered(int copy, Long ok, Throwable reason) {
        if (session != null || isOver || reason == null && ok == null) {
            return;
        }
        long now = System.nanoTime();
        if (reason == null && ok == CUT) {
            beat.capped(copy, now);
        } else if (reason == null) {
            isOnOther = false;
            beat.ok(copy, now);
        } else if (reason instanceof TooFewReplicasException
                || reason instanceof ServerException && request.names.size() == 1) {
            beat.refused(copy, now);
        } else if (copy == number) {
            isOnOther = true;
            beat.cut(now);
        }
        schedule();
    }

    /** Asks the server how long the hold lasts. {@code null}: the server has no such hold, so it is lost. */
    CompletableFuture<Long> looked(Supplier<CompletableFuture<Long>> check) {
        int asked;
        synchronized (this) {
            asked = ++number;
            if (session == null) {
                beat.asks(asked, System.nanoTime());
            }
        }
        return check.get().thenApply(left -> {
            if (left == null) {
                hold.lose("the server has no such hold", null);
                return null;
            }
            synchronized (this) {
                if (session == null && !isOver) {
                    beat.left(asked, TimeUnit.MILLISECONDS.toNanos(left), System.nanoTime());
                    schedule();
                }
            }
            return left;
        });
    }
}
