package dlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Keeps all locks that are acquired with it by one heartbeat, over the connection of the client. When the heartbeats
 * end, for example because the process hangs, the server frees all of these locks together.
 *
 * <pre>{@code
 * try (Session session = client.openSession(Duration.ofSeconds(10))) {
 *     DLock lock = client.lock("job:1").withLease(Lease.of(session));
 *     try (Hold hold = lock.acquire()) {
 *         write(report, hold.fencingToken());
 *     }
 * }
 * }</pre>
 *
 * <p>Open it once, and use it in all threads. After a restart or a failover, the session opens itself again on the new
 * server and binds its locks there. Locks that the server no longer has are lost. A lock that was deleted is lost with
 * the next heartbeat.
 *
 * <p>In a cluster, each node with locks of the session gets heartbeats, over a connection of its own. If a node fails, the
 * session is lost only if no other node has locks of it. The locks on that node are lost, unless they are bound on the
 * next primary in time.
 */
public final class Session implements AutoCloseable {
    /**
     * The lease of each lock is this many times the session's timeout. The server renews the lease when a third has
     * passed, so a hold of a lost session outlasts the one timeout for which the client counts on it.
     */
    static final int LEASES = 3;

    /** The shortest and the longest timeout, as the server allows. */
    private static final long SHORTEST_MILLIS = 300;
    private static final long LONGEST_MILLIS = 3_600_000;
    /** How long a reply to a heartbeat may take, at least and at most. */
    private static final long SHORTEST_PATIENCE_MILLIS = 100;
    private static final long LONGEST_PATIENCE_MILLIS = 2000;
    /** How much longer than a try opening and closing look for a server: a little for the last answer. */
    private static final long ANSWER_MILLIS = 100;
    /** The cap of a hold is asked for when no more than this many timeouts of its first lease are left. */
    private static final int CAP_IS_NEAR = 2;
    /** A session on a node without locks is ended after this many timeouts. */
    private static final int IDLE_TIMEOUTS = 2;
    /** The number of locks about which the server is asked at once. */
    private static final int AT_ONCE = 100;

    private static final String LATE = "no heartbeat was confirmed within its timeout";
    private static final String CLOSED = "it was closed";

    private final Core core;
    private final long timeoutMillis;
    private final long timeoutNanos;
    private final boolean isManual;
    /**
     * The name by which the server knows the session. On a node of a cluster, each opening has a new id. With the same
     * id, a hold could be bound to what is left of an earlier opening on another node, which gets no heartbeats.
     */
    private volatile String id = UUID.randomUUID().toString();
    private final CompletableFuture<LockLostException> lost = new CompletableFuture<>();
    /** The sessions on the nodes, if this is the program's session in a cluster; else {@code null}. */
    private final NodeSessions nodes;
    /**
     * The program's session, if this is its part on one node of a cluster; else {@code null}.
     */
    private final Session whole;
    /** A key on that node; empty without one. */
    private final String key;
    /** The connection of a session on a node for its heartbeats; else {@code null}. */
    private final Pinned pinned;

    // Guarded by this. A hold calls this session with its own monitor, so no hold is called with this monitor.
    /** Why it is not open, or {@code null}. */
    private String notOpen = "it was not opened";
    /** Until when the server certainly has it, and when the next heartbeat is due; {@code null}: it was not opened. */
    private Heartbeat beat;
    /** The number of the last heartbeat. */
    private int beats;
    /** Whether the program has called {@link #beat} since the last heartbeat, or a heartbeat is needed without that. */
    private boolean isBeaten;
    /** Whether a {@link #round} is under way. */
    private boolean isBusy;
    /**
     * Whether the first attempt to open the session has ended; never for the whole session of a cluster, which has no
     * timer.
     */
    private boolean isStarted;
    /** Why the last heartbeat failed, or {@code null}. */
    private Throwable failure;
    /**
     * How often this client has begun to open it on a server, even if that failed. A lock that was requested before the
     * last time must be bound again.
     */
    private long openings;
    /** Until when the session was certain when that began the last time. */
    private long former;
    private final Set<Bound> bindings = new LinkedHashSet<>();
    /** The number of acquisitions that are under way with it. */
    private int users;
    /** When the last acquisition began or ended, or the last hold left. */
    private long used = System.nanoTime();
    /** Releases that no server answered. They are repeated, because the session would keep these holds. */
    private final Set<Supplier<CompletableFuture<?>>> owed = new LinkedHashSet<>();
    /** Completes when the repeats that are under way have ended. */
    private CompletableFuture<Void> repaying = CompletableFuture.completedFuture(null);
    private Timer.Task timer;
    /** When {@link #timer} is due. Only with a timer. */
    private long turns;

    private Session(Core core, Duration timeout, boolean isManual, Session whole, String key) {
        this.core = core;
        this.whole = whole;
        this.key = key;
        this.pinned = whole == null ? null : new Pinned(core.backend, this::keyNow);
        this.nodes = whole == null && core.backend.isCluster() ? new NodeSessions(this, core) : null;
        this.timeoutMillis = timeout.toMillis();
        this.timeoutNanos = TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        this.isManual = isManual;
        if (timeoutMillis < SHORTEST_MILLIS || timeoutMillis > LONGEST_MILLIS) {
            throw new IllegalArgumentException("the timeout of a session must be 300 ms to one hour, not " + timeout);
        }
    }

    static Session open(Core core, Duration timeout, boolean isManual) {
        core.checkOpen();
        Session session = new Session(core, timeout, isManual, null, "");
        if (session.nodes == null) {
            Futures.join(session.begin());
        } else {
            // No lock exists yet. The id stands for a key, so that some node is asked whether sessions can be opened.
            Futures.join(session.nodes.at(session.id));
            session.notOpen = null;
        }
        core.keep(session);
        return session;
    }

    /** Opens the session on the node of a cluster that has a key. */
    CompletableFuture<Session> onNode(String its) {
        Session session = new Session(core, timeout(), isManual, this, its);
        return session.begin().thenApply(done -> session);
    }

    /** Opens the session. Fails if no server opens it in time. */
    private CompletableFuture<Void> begin() {
        return core.repeat(this::round, trying()).handle((done, failed) -> {
            synchronized (this) {
                isStarted = true;
                if (failed != null) {
                    notOpen = CLOSED;
                }
                schedule();
            }
            if (failed != null) {
                throw Futures.rethrown(failed);
            }
            return null;
        });
    }

    /** Returns until when opening and closing look for a server. */
    private Deadline trying() {
        return Deadline.afterMillis(core.tryMillis + ANSWER_MILLIS);
    }

    /** Returns the session that keeps a hold of this key. */
    CompletableFuture<Session> at(String its) {
        return nodes == null ? CompletableFuture.completedFuture(this) : nodes.at(its);
    }

    /** Notes that the node of a key does not know this session: the key may have moved to another node. */
    void misplaced() {
        whole.nodes.forget(this);
        missing();
    }

    /** Notes that an acquisition begins (1) or ends (-1). */
    synchronized void use(int change) {
        users += change;
        used = System.nanoTime();
    }

    boolean isOfNode() {
        return whole != null;
    }

    /** Returns whether it was closed or lost. */
    synchronized boolean isOver() {
        return CLOSED.equals(notOpen) || LATE.equals(notOpen);
    }

    /** Returns whether it is the session on a node, and has kept nothing for so long that it could be ended. */
    private boolean isIdle() {
        return whole != null && users == 0 && bindings.isEmpty() && owed.isEmpty()
                && System.nanoTime() - used > IDLE_TIMEOUTS * timeoutNanos;
    }

    /** Returns the name by which the server knows it, a UUID. The nodes of a cluster know it by other names. */
    public String id() {
        return id;
    }

    /** Returns the timeout. */
    public Duration timeout() {
        return Duration.ofMillis(timeoutMillis);
    }

    /** Returns whether it is open, as far as is known here. */
    public boolean isOpen() {
        return reason() == null;
    }

    /**
     * Completes when the session is lost, or must be assumed lost: no heartbeat was confirmed within its timeout,
     * counted from when the last confirmed one was sent. All of its locks are lost with it, and it cannot be opened
     * again. Does not complete when the session is closed.
     */
    public CompletableFuture<LockLostException> lost() {
        return lost.copy();
    }

    /**
     * Says that the program is alive: see {@link DLockClient#openManualSession}. Sends nothing itself and does not wait,
     * so call it often.
     */
    public void beat() {
        if (nodes != null) {
            nodes.all().forEach(Session::beat);
            return;
        }
        synchronized (this) {
            if (!isBeaten) {
                isBeaten = true;
                schedule();
            }
        }
    }

    /**
     * Ends the session, and frees all of its locks with one command. A lock that was still held is lost.
     *
     * @throws UnavailableException no server answered within a second; in a cluster, a node did not answer within a
     *     sixth of the timeout (100 ms to 2 s). The server then frees the locks when the timeout has passed since the
     *     last heartbeat, or after {@code dlock.session-grace} more
     */
    @Override
    public void close() {
        Futures.join(end());
    }

    /** Ends it as {@link #close} does. Completes when the server has ended it. */
    CompletableFuture<?> end() {
        List<Bound> left;
        boolean wasOpen;
        synchronized (this) {
            wasOpen = reason() == null;
            notOpen = notOpen == null || wasOpen ? CLOSED : notOpen;
            schedule();
            left = new ArrayList<>(bindings);
        }
        core.forget(this);
        lose(left, "its session was closed", null);
        if (nodes != null) {
            List<CompletableFuture<?>> ends = new ArrayList<>();
            nodes.all().forEach(node -> ends.add(node.end()));
            return Futures.all(ends);
        }
        byte[][] close = Words.command("DLOCK.SESSION", id, "CLOSE");
        if (whole != null) {
            whole.nodes.drop(this);
            return wasOpen ? pinned.ask(close, this::limited).handle((done, failed) -> {
                pinned.end();
                if (failed != null) {
                    throw Futures.rethrown(Futures.cause(failed) instanceof Unanswered
                            ? core.unavailable(Futures.cause(failed)) : failed);
                }
                return done;
            }) : CompletableFuture.completedFuture(null);
        }
        return wasOpen
                ? core.repeat("", close, trying())
                : CompletableFuture.completedFuture(null);
    }

    /** Returns a key on the node of this session: that of one of its holds, because slots move. */
    private synchronized String keyNow() {
        return bindings.isEmpty() ? key : bindings.iterator().next().name();
    }

    // For its locks

    boolean isOf(Core other) {
        return core == other;
    }

    /** Takes a hold from another node, which is certain until {@code certain}. The next heartbeat binds the hold. */
    synchronized void adopt(Bound bound, long certain) {
        bindings.add(bound);
        bound.keeper = this;
        bound.binding.unbind(certain);
        missing();
    }

    /** Notes that all sessions on nodes are lost: so is this one. */
    void lostOnAllNodes(Throwable why) {
        synchronized (this) {
            if (notOpen != null) {
                return;
            }
            notOpen = LATE;
            failure = why;
        }
        ended(List.of());
    }

    long leaseMillis() {
        return LEASES * timeoutMillis;
    }

    synchronized long openings() {
        return openings;
    }

    /** Returns the exception for an acquisition, or {@code null} if the session is open. */
    IllegalStateException closed() {
        String why = reason();
        return why == null ? null : new IllegalStateException("the session is not open: " + why);
    }

    /** Returns why the session is not open, or {@code null}. Notices that it is late. */
    private synchronized String reason() {
        if (notOpen != null || nodes != null) {
            return notOpen;
        }
        return beat.validity().passes(System.nanoTime()) ? null : LATE;
    }

    /** Notes that the server does not know it. A heartbeat, which opens it again, is due at once. */
    synchronized void missing() {
        beat.hurry(System.nanoTime());
        isBeaten = true;
        schedule();
    }

    /**
     * Takes a hold that was granted. {@code before}: how often the session had been opened when the lock was requested.
     * If the session is not open, the hold is not certain from the start.
     */
    synchronized void join(Bound bound, long before) {
        if (reason() == null) {
            bindings.add(bound);
            if (before != openings) {
                bound.binding.unbind(former);
                missing();
            } else {
                // A cap may end this hold before the session's time is over.
                scheduleBy(bound);
            }
        }
    }

    synchronized boolean keeps(Bound bound) {
        return bindings.contains(bound);
    }

    /** Forgets a hold that is about to be released, or has moved or ended. Returns whether it was kept. */
    synchronized boolean leave(Bound bound) {
        used = System.nanoTime();
        return bindings.remove(bound);
    }

    /** Adds a release that failed. The session repeats it. */
    synchronized void owe(Supplier<CompletableFuture<?>> release) {
        if (notOpen == null) {
            owed.add(release);
        }
    }

    /** Returns until when the hold is certain; the present if the session does not keep it. */
    synchronized long until(Bound bound) {
        return bindings.contains(bound) ? bound.binding.until(until()) : System.nanoTime();
    }

    private long until() {
        return beat == null ? System.nanoTime() : beat.validity().until();
    }

    /**
     * Notes that no cap ends the hold before this time. It ends then for the client, unless the server says by that
     * time that it may last longer. If that is soon, the server is asked at once: the next heartbeat may be too late.
     */
    void capNotBefore(Bound bound, long time) {
        boolean isSoon;
        synchronized (this) {
            bound.binding.capNotBefore(time);
            isSoon = bound.binding.needsCap(System.nanoTime() + CAP_IS_NEAR * timeoutNanos);
            scheduleBy(bound);
        }
        if (isSoon) {
            learnCap(bound, learning());
        }
    }

    /** Asks for the cap of a hold. Completes with whether the server has the hold. */
    CompletableFuture<Boolean> learnCap(Bound bound, Deadline giveUp) {
        long asked = System.nanoTime();
        return bound.commands.cap(giveUp).thenApply(left -> {
            if (left == null) {
                return false;
            }
            synchronized (this) {
                boolean hasCap = left != Long.MAX_VALUE;
                bound.binding.capIs(hasCap, hasCap ? asked + TimeUnit.MILLISECONDS.toNanos(left) - Validity.GRAIN : 0);
                if (hasCap) {
                    scheduleBy(bound);
                }
            }
            return true;
        });
    }

    /**
     * Asks for the caps of holds whose first lease ends soon. No cap ends a hold before its first lease: the server
     * refuses a lease beyond the cap. The caps that are not asked for before the next heartbeat follow behind it.
     */
    private CompletableFuture<Void> learn() {
        long soon = System.nanoTime() + CAP_IS_NEAR * timeoutNanos;
        List<Bound> unknown = new ArrayList<>();
        synchronized (this) {
            bindings.stream().filter(bound -> bound.binding.needsCap(soon)).forEach(unknown::add);
        }
        Deadline giveUp = learning();
        return inTurn(unknown, 0, bound -> learnCap(bound, giveUp).handle((known, failed) -> null));
    }

    /** Returns the deadline for an answer about caps. */
    private Deadline learning() {
        return Deadline.afterMillis(Math.max(SHORTEST_PATIENCE_MILLIS, timeoutMillis / 6));
    }

    // Heartbeats

    /** Sends a heartbeat, and does what follows from its reply. Opens the session if the server does not know it. */
    private CompletableFuture<Void> round() {
        List<Bound> known;
        boolean isNew;
        synchronized (this) {
            known = new ArrayList<>(bindings);
            isNew = openings == 0;
        }
        int number = beats();
        long sent = System.nanoTime();
        CompletableFuture<Long> reply = isNew
                ? CompletableFuture.completedFuture(null)
                : heartbeat("XX").exceptionally(failed -> {
                    if (isMissing(Futures.cause(failed))) {
                        return null;
                    }
                    throw Futures.rethrown(failed);
                });
        return reply.thenCompose(count -> count == null ? reopen(known) : confirmed(number, sent, known, count));
    }

    /** Opens the session on a server that does not know it. */
    private CompletableFuture<Void> reopen(List<Bound> known) {
        synchronized (this) {
            if (CLOSED.equals(notOpen)) {
                return CompletableFuture.completedFuture(null);
            }
            // The server has none of the bindings. Until a hold is bound again, it is certain no longer than it is now.
            openings++;
            id = whole == null ? id : UUID.randomUUID().toString();
            former = until();
            bindings.forEach(bound -> bound.binding.unbind(former));
        }
        int number = beats();
        long sent = System.nanoTime();
        return heartbeat("NX").thenCompose(count -> {
            if (count != null) {
                return confirmed(number, sent, known, count);
            }
            // An earlier attempt has opened it, and its reply was lost.
            int again = beats();
            long sentAgain = System.nanoTime();
            return heartbeat("XX").thenCompose(more -> confirmed(again, sentAgain, known, more));
        });
    }

    /** Notes that a heartbeat is about to be sent. Returns its number. */
    private synchronized int beats() {
        beats++;
        if (beat != null) {
            beat.sends(beats, timeoutNanos, System.nanoTime());
        }
        return beats;
    }

    /**
     * Sends a heartbeat. Completes with the number of bindings that the server has; {@code null}: the server does not
     * know the session ({@code XX}), or already has it ({@code NX}).
     */
    private CompletableFuture<Long> heartbeat(String option) {
        byte[][] command = Words.command("DLOCK.SESSION", id, "PX", timeoutMillis, option);
        boolean hasFailed;
        synchronized (this) {
            hasFailed = failure != null;
        }
        if (whole != null) {
            return pinned.ask(command, this::limited).thenApply(Words::number);
        }
        // After a failure, the shared connection may lead to a server that hangs or was replaced.
        return (hasFailed ? askOnOther(command) : limited(core.backend.ask("", command))).thenApply(Words::number);
    }

    private CompletableFuture<Object> askOnOther(byte[][] command) {
        return limited(core.backend.dedicated("").thenCompose(at -> limited(at.ask(command))
                .whenComplete((reply, failed) -> {
                    if (failed == null || Futures.cause(failed) instanceof ServerException) {
                        at.giveBack();
                    } else {
                        at.leave();
                    }
                })));
    }

    /**
     * Limits the time of an answer to a part of the timeout. With a timeout of 600 ms or more, two heartbeats may fail
     * before the session is lost; with a shorter one, at least one.
     */
    private <T> CompletableFuture<T> limited(CompletableFuture<T> asked) {
        long part = timeoutMillis / 6;
        long millis = Math.max(SHORTEST_PATIENCE_MILLIS, Math.min(part, LONGEST_PATIENCE_MILLIS));
        return asked.copy().orTimeout(millis, TimeUnit.MILLISECONDS).exceptionally(failed -> {
            if (Futures.cause(failed) instanceof TimeoutException) {
                throw new Unanswered("no reply within " + millis + " ms", null);
            }
            throw Futures.rethrown(failed);
        });
    }

    /**
     * Notes that the server has confirmed a heartbeat. {@code known}: the bindings when it was sent; {@code count}: how
     * many the server has.
     */
    private CompletableFuture<Void> confirmed(int number, long sent, List<Bound> known, long count) {
        List<Bound> again = new ArrayList<>();
        List<Supplier<CompletableFuture<?>>> releases;
        synchronized (this) {
            if (isStarted && reason() != null) {
                return CompletableFuture.completedFuture(null);
            }
            known.retainAll(bindings);
            long expected = known.stream().filter(bound -> !bound.binding.isUnbound())
                    .mapToLong(bound -> bound.commands.names().size()).sum();
            if (count < expected) {
                // The server lacks a hold, and does not say which. Until a hold is bound again, this heartbeat and later
                // ones prove nothing about it.
                known.forEach(bound -> bound.binding.unbind(until()));
            }
            long now = System.nanoTime();
            if (beat == null) {
                beat = new Heartbeat(new Validity(timeoutNanos, sent, false, now), timeoutNanos, sent, true, now);
            } else {
                beat.ok(number, now);
            }
            notOpen = null;
            bindings.stream().filter(bound -> bound.binding.isUnbound()).forEach(again::add);
            releases = repaying.isDone() ? new ArrayList<>(owed) : List.of();
        }
        repay(releases);
        return inTurn(again, 0, this::bind).thenCompose(bound -> learn());
    }

    /**
     * Calls {@code ask}, which binds holds or asks for their caps, for {@link #AT_ONCE} holds at once, then for the
     * next ones, until the next heartbeat is due. Even a round that is late handles the first {@link #AT_ONCE}:
     * otherwise a slow program, whose rounds are all late, would bind nothing.
     */
    private CompletableFuture<Void> inTurn(List<Bound> all, int from, Function<Bound, CompletableFuture<Void>> ask) {
        synchronized (this) {
            if (from >= all.size() || from > 0 && beat.at() - System.nanoTime() <= 0) {
                return CompletableFuture.completedFuture(null);
            }
        }
        int to = Math.min(all.size(), from + AT_ONCE);
        List<CompletableFuture<?>> asked = new ArrayList<>();
        all.subList(from, to).forEach(bound -> asked.add(ask.apply(bound)));
        return Futures.all(asked).thenCompose(done -> inTurn(all, to, ask));
    }

    /** Binds a hold again. After a failure it is tried again, until the hold is not certain any more. Never fails. */
    private CompletableFuture<Void> bind(Bound bound) {
        return limited(bound.commands.bindTo(id)).handle((left, failed) -> {
            if (failed == null && left == null) {
                lose(List.of(bound), "the server has no such hold", null);
            } else if (failed == null) {
                synchronized (this) {
                    bound.binding.bind(System.nanoTime());
                }
            } else if (whole != null) {
                core.backend.distrust(bound.name());
                if (isMissing(Futures.cause(failed))) {
                    whole.nodes.move(this, bound);
                }
            }
            return null;
        });
    }

    /**
     * Repeats releases that had no answer, one after another. The next heartbeat does not wait for them: a server may
     * answer heartbeats and no releases.
     */
    private void repay(List<Supplier<CompletableFuture<?>>> releases) {
        CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
        for (Supplier<CompletableFuture<?>> release : releases) {
            all = all.thenCompose(before -> repay(release));
        }
        synchronized (this) {
            repaying = releases.isEmpty() ? repaying : all;
        }
    }

    /** Repeats a release that had no answer. Never fails. */
    private CompletableFuture<Void> repay(Supplier<CompletableFuture<?>> release) {
        return release.get().handle((done, failed) -> {
            if (failed == null) {
                synchronized (this) {
                    owed.remove(release);
                }
            }
            return null;
        });
    }

    static boolean isMissing(Throwable reason) {
        return reason instanceof ServerException && ((ServerException) reason).code().equals("NOSESSION");
    }

    // The course of time

    /** Schedules the next {@link #turn}. The caller holds the monitor. */
    private void schedule() {
        cancelTimer();
        if (notOpen != null || !isStarted) {
            return;
        }
        long now = System.nanoTime();
        long next = until() - now;
        for (Bound bound : bindings) {
            next = Math.min(next, bound.binding.until(until()) - now);
        }
        if (beat != null && !isBusy && (!isManual || isBeaten)) {
            next = Math.min(next, beat.at() - now);
        }
        turns = now + next;
        timer = core.schedule(this::turn, next);
    }

    /** The caller holds the monitor. */
    private void cancelTimer() {
        if (timer != null) {
            timer.cancel();
            timer = null;
        }
    }

    /**
     * Has the next {@link #turn} come no later than the end of this hold. Does not look at the other holds: a program
     * may have thousands, and each grant comes here. The caller holds the monitor.
     */
    private void scheduleBy(Bound bound) {
        long end = bound.binding.until(until());
        if (timer == null) {
            schedule();
        } else if (end - turns < 0) {
            timer.cancel();
            turns = end;
            timer = core.schedule(this::turn, end - System.nanoTime());
        }
    }

    /** Does what is due: ends the session or holds, or begins a round. */
    private void turn() {
        boolean isLate;
        boolean isDue;
        List<Bound> late = new ArrayList<>();
        List<Bound> capped = new ArrayList<>();
        synchronized (this) {
            if (notOpen != null) {
                return;
            }
            // The timer may be a later one: another thread sets it while this turn is about to begin.
            cancelTimer();
            long now = System.nanoTime();
            isLate = !beat.validity().passes(now);
            if (!isLate && isIdle()) {
                core.tell(this::end);
                return;
            }
            isDue = !isLate && !isBusy && beat.at() - now <= 0 && (!isManual || isBeaten);
            if (isLate) {
                notOpen = LATE;
                late.addAll(bindings);
            } else {
                bindings.stream().filter(bound -> bound.binding.hasEnded(now)).forEach(late::add);
                bindings.stream().filter(bound -> bound.binding.isCapped(now)).forEach(capped::add);
            }
            if (isDue) {
                isBeaten = false;
                isBusy = true;
            }
        }
        if (isLate) {
            ended(late);
            return;
        }
        lose(late, "it was not bound to the session again in time", null);
        lose(capped, "it reached its cap", null);
        if (isDue) {
            round().whenComplete((done, failed) -> went(Futures.cause(failed)));
        }
        synchronized (this) {
            schedule();
        }
    }

    /**
     * Notes the end of a round. If the round failed, or a hold is not bound yet, the next one follows soon; in a manual
     * session, no sooner than the program beats again.
     */
    private synchronized void went(Throwable failed) {
        isBusy = false;
        failure = failed;
        if (failed != null || bindings.stream().anyMatch(bound -> bound.binding.isUnbound())) {
            beat.cut(System.nanoTime());
        }
        schedule();
    }

    /** Ends a session that is lost, with the holds that are left. */
    private void ended(List<Bound> left) {
        Throwable why;
        synchronized (this) {
            why = failure;
        }
        core.forget(this);
        if (whole != null) {
            pinned.end();
            whole.nodes.lost(this, why);
        }
        LockLostException loss = new LockLostException("the session " + id + " was lost: " + LATE, why);
        core.tell(() -> lost.complete(loss));
        lose(left, "its session is not open: " + LATE, why);
    }

    /** Loses those of these holds that the session still keeps. */
    private void lose(List<Bound> some, String why, Throwable cause) {
        for (Bound bound : some) {
            boolean was;
            synchronized (this) {
                was = bindings.remove(bound);
            }
            if (was) {
                bound.lose.accept(why, cause);
            }
        }
    }

    @Override
    public String toString() {
        return "Session " + id;
    }
}
