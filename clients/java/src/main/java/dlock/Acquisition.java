package dlock;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * One acquisition. After a lost connection the command is sent again with the same {@code REQUEST}, so the repeat gets
 * the place or the grant of the first.
 *
 * <p>A free lock costs one command on the shared connection. A request that waits, or that binds its hold to a session,
 * uses a connection of its own.
 */
final class Acquisition {
    /** A grant, as the server replied it. */
    static final class Grant {
        final long token;
        /** The number of a permit, or {@code null}. */
        final Long slot;
        /** The time at which the granted command was sent, by {@link System#nanoTime}. */
        final long sent;
        /** The connection that a session hold is bound to, else {@code null}. */
        final DedicatedConnection connection;
        /** Why it is not known to be on enough replicas, else {@code null}. */
        final RuntimeException unconfirmed;

        Grant(Object reply, long sent, DedicatedConnection connection, RuntimeException unconfirmed) {
            this.token = Words.token(reply);
            this.slot = Words.slot(reply);
            this.sent = sent;
            this.connection = connection;
            this.unconfirmed = unconfirmed;
        }
    }

    /** After a longer wait, a failure is the first one of a new outage. */
    private static final long WORKED_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Core core;
    private final Request request;
    private final String owner;
    private final boolean isOwnerFresh;
    private final String id;
    private final Limit limit;
    /** The grant, or {@code null} if the wait has ended. Fails with {@link DLockException}, or is cancelled. */
    private final CompletableFuture<Grant> result = new CompletableFuture<>();
    /** Completes when an abandoned acquisition has left the queue and holds nothing. */
    private final CompletableFuture<Void> undone = new CompletableFuture<>();

    // Guarded by this.
    private boolean decided;
    private boolean abandoned;
    private boolean leaving;
    private DedicatedConnection connection;
    private int failures;
    /** The failure because of which no server has the request now; {@code null}: one has it, or is asked first. */
    private Throwable trouble;

    /** {@code isOwnerFresh}: whether no other request has this owner. */
    Acquisition(Core core, Request request, String owner, boolean isOwnerFresh, Limit limit) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.isOwnerFresh = isOwnerFresh;
        this.id = core.freshId();
        this.limit = limit;
    }

    CompletableFuture<Grant> start() {
        if (request.lease.session != null && request.lease.session.closed() != null) {
            finish(request.lease.session.closed());
        } else if (request.isSession() || request.replicas != null) {
            queue();
        } else {
            tryAtOnce();
        }
        return result;
    }

    /**
     * Abandons the acquisition: cancels the result, unless it is decided already.
     *
     * @return completes when the request has left the queue and holds nothing. Never fails
     */
    CompletableFuture<Void> abandon() {
        DedicatedConnection left;
        synchronized (this) {
            if (decided) {
                return result.handle((grant, failed) -> null);
            }
            if (abandoned) {
                return undone;
            }
            abandoned = true;
            left = connection;
            leaving = left != null;
        }
        if (left != null) {
            left.leave(isOwnerFresh ? releases(null) : List.of()).thenAccept(this::undo);
        }
        // Without a connection, the current step sees the flag. It lasts one reply timeout at most.
        result.completeExceptionally(new CancellationException());
        return undone;
    }

    /** Returns why no server has the request, or {@code null}. While it is in a queue, tells the limit. */
    synchronized Throwable trouble() {
        if (connection != null) {
            limit.heard(connection.answered());
        }
        return trouble;
    }

    /** Acquires without waiting, on the shared connection. */
    private void tryAtOnce() {
        long sent = System.nanoTime();
        core.backend.ask(request.first(), command(DedicatedConnection.NOT_AT_ALL)).whenComplete((reply, failed) -> {
            if (isAbandoned()) {
                undo(failed == null ? reply : null);
            } else if (failed != null) {
                failed(Futures.cause(failed), 0);
            } else if (reply != null) {
                granted(new Grant(reply, sent, null, null));
            } else if (limit.end.hasPassed()) {
                finish(null);
            } else {
                limit.heard(System.nanoTime());
                queue();
            }
        });
    }

    /** Waits in the queue, on a connection of its own. */
    private void queue() {
        core.backend.dedicated(request.first()).whenComplete((taken, failed) -> {
            if (failed != null) {
                if (isAbandoned()) {
                    undo(null);
                } else {
                    failed(Futures.cause(failed), 0);
                }
                return;
            }
            boolean proceeds;
            synchronized (this) {
                proceeds = !abandoned;
                if (proceeds) {
                    connection = taken;
                    trouble = null;
                }
            }
            if (proceeds) {
                long sent = System.nanoTime();
                asked(taken).whenComplete((grant, refused) -> answered(taken, sent, grant, refused));
            } else {
                taken.giveBack();
                undo(null);
            }
        });
    }

    /** Sends the request. Completes with the grant, or with {@code null} if the wait has ended. */
    private CompletableFuture<Grant> asked(DedicatedConnection at) {
        DedicatedConnection bound = request.isSession() ? at : null;
        long sent = System.nanoTime();
        if (request.replicas == null) {
            return at.request(this::command, limit)
                    .thenApply(token -> token == null ? null : new Grant(token, sent, bound, null));
        }
        // WAIT follows the grant: behind a refusal it would wait for nothing, and hold up the next command.
        return at.request(this::command, limit.atOnce()).thenCompose(token -> {
            if (token != null) {
                Replicas replicas = replicas();
                return replicas.acknowledged(at).handle((acknowledged, failed) -> new Grant(
                        token, sent, bound, failed == null ? tooFew(replicas, acknowledged) : refused(failed)));
            }
            limit.heard(System.nanoTime());
            return limit.end.hasPassed()
                    ? CompletableFuture.completedFuture(null)
                    : at.request(this::command, limit).thenCompose(later -> confirmed(at, bound, later));
        });
    }

    /**
     * Waits for the replicas after a grant to a request that has waited. Redis before 7.0.12 does not count such a
     * grant as a write of its connection, so {@code WAIT} would not wait for it. A renewal is such a write.
     */
    private CompletableFuture<Grant> confirmed(DedicatedConnection at, DedicatedConnection bound, Object token) {
        if (token == null) {
            return CompletableFuture.completedFuture(null);
        }
        long sent = System.nanoTime();
        return new HoldCommands(core, request.with(replicas()), owner, Words.token(token))
                .acknowledged(at, request.firstLeaseMillis())
                .handle((renewed, failed) -> {
                    Throwable reason = Futures.cause(failed);
                    return new Grant(token, sent, bound, failed == null || reason instanceof TooFewReplicasException
                            ? (TooFewReplicasException) reason : refused(failed));
                });
    }

    /** Returns the server's refusal of what follows a grant, which is then released. Throws any other failure. */
    private static RuntimeException refused(Throwable failed) {
        Throwable reason = Futures.cause(failed);
        if (reason instanceof ServerException && !Unanswered.mayRepeat(reason)) {
            return (ServerException) reason;
        }
        throw Futures.rethrown(failed);
    }

    /** Returns the replicas to wait for, with the time that is left. */
    private Replicas replicas() {
        return request.replicas.within(limit.cut(request.replicas.millis));
    }

    private TooFewReplicasException tooFew(Replicas replicas, long acknowledged) {
        return acknowledged < replicas.count ? replicas.tooFew(request.names, acknowledged) : null;
    }

    private void answered(DedicatedConnection at, long sent, Grant grant, Throwable refused) {
        synchronized (this) {
            if (leaving) {
                // abandon() handles the reply.
                return;
            }
            connection = null;
        }
        if (refused != null) {
            Throwable reason = Futures.cause(refused);
            if (reason instanceof ServerException) {
                at.giveBack();
                failed(reason, System.nanoTime() - sent);
            } else {
                long waited = System.nanoTime() - sent;
                limit.heard(at.answered());
                // The server executes nothing more of it before the repeat is sent.
                at.leave().thenRun(() -> {
                    if (isAbandoned()) {
                        undo(null);
                    } else {
                        failed(reason, waited);
                    }
                });
            }
        } else if (grant != null && grant.unconfirmed != null) {
            // The end of the connection releases a session.
            at.leave().thenRun(() -> undo(grant.token));
            undone.thenRun(() -> finish(grant.unconfirmed));
        } else if (grant != null && request.isSession()) {
            granted(grant);
        } else {
            at.giveBack();
            if (grant != null) {
                granted(grant);
            } else if (limit.end.isNever()) {
                // An operator ended the wait (CLIENT UNBLOCK), but the caller wants to wait forever.
                again(0);
            } else {
                finish(null);
            }
        }
    }

    /** {@code waitedNanos}: the time that the request was in the queue before it failed. */
    private void failed(Throwable reason, long waitedNanos) {
        Session session = request.lease.session;
        if (session != null && session.closed() != null) {
            finish(session.closed());
            return;
        }
        boolean isMissing = session != null && Session.isMissing(reason);
        if (isMissing && session.isOfNode()) {
            // The key may be on another node than the session.
            finish((RuntimeException) reason);
            return;
        }
        if (isMissing) {
            // The server was restarted, or another one has taken over. The session opens itself again.
            session.missing();
            limit.heard(System.nanoTime());
        }
        boolean held = reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE");
        if (held && core.besideMillis > 0) {
            limit.heard(System.nanoTime());
            if (limit.end.hasPassed()) {
                finish(null);
            } else {
                again(Math.min(core.besideMillis, limit.end.leftMillis()));
            }
            return;
        }
        if (!isMissing && !Unanswered.mayRepeat(reason)) {
            finish(reason instanceof RuntimeException ? (RuntimeException) reason : core.unavailable(reason));
            return;
        }
        long pause;
        synchronized (this) {
            trouble = reason;
            failures = waitedNanos > WORKED_NANOS ? 0 : failures;
            pause = Core.pauseMillis(failures++, limit.giveUp());
        }
        again(pause);
    }

    private void again(long pauseMillis) {
        Futures.after(pauseMillis).thenRun(() -> {
            if (isAbandoned()) {
                undo(null);
            } else {
                queue();
            }
        });
    }

    private byte[][] command(long block) {
        return request.acquire(owner, id, true, block);
    }

    private synchronized boolean isAbandoned() {
        return abandoned;
    }

    private void granted(Grant grant) {
        if (decide()) {
            result.complete(grant);
        } else if (grant.connection == null) {
            undo(grant.token);
        } else {
            grant.connection.leave().thenRun(() -> undo(grant.token));
        }
    }

    private void finish(RuntimeException failure) {
        if (!decide()) {
            undo(null);
        } else if (failure == null) {
            result.complete(null);
        } else {
            result.completeExceptionally(failure);
        }
    }

    /** Decides the result, unless the acquisition is abandoned. Afterwards it cannot be abandoned anymore. */
    private synchronized boolean decide() {
        decided = !abandoned;
        return decided;
    }

    /** Releases the hold that may have been granted. The token is {@code null} if the outcome is unknown. */
    private void undo(Object token) {
        if (core.isClosed()) {
            undone.complete(null);
            return;
        }
        undoing(token, cleaning()).whenComplete((done, failed) -> {
            // Without a reply, the hold lapses, unless its session keeps it.
            if (failed != null && request.lease.session != null) {
                request.lease.session.owe(() -> undoing(token, cleaning()));
            }
            undone.complete(null);
        });
    }

    private CompletableFuture<Void> undoing(Object token, Deadline until) {
        if (token != null || isOwnerFresh) {
            return release(Words.token(token), until);
        }
        // The owner may hold the lock again by now, so only the entry of this request may be released. The repeat
        // without BLOCK returns the token of this request, or adds an entry that is released below.
        byte[][] repeat = request.acquire(owner, id, false, DedicatedConnection.NOT_AT_ALL);
        return core.repeat(request.first(), repeat, until).thenCompose(answer -> answer.reply == null
                ? CompletableFuture.completedFuture(null)
                : release(Words.token(answer.reply), until));
    }

    private CompletableFuture<Void> release(Long token, Deadline until) {
        List<CompletableFuture<?>> released = new ArrayList<>();
        Iterator<String> names = request.names.iterator();
        releases(token).forEach(release -> released.add(core.repeat(names.next(), release, until)));
        return Futures.all(released);
    }

    /** Returns the releases of what was granted, one for each name. */
    private List<byte[][]> releases(Long token) {
        List<byte[][]> releases = new ArrayList<>();
        for (String name : request.names) {
            List<Object> words = new ArrayList<>(List.of("DLOCK.RELEASE", name, owner, request.mode.side));
            words.addAll(isOwnerFresh ? List.of("ALL") : List.of("REQUEST", core.freshId()));
            words.addAll(token == null ? List.of() : List.of("TOKEN", token));
            releases.add(Words.command(words.toArray()));
        }
        return releases;
    }

    private Deadline cleaning() {
        return Deadline.afterMillis(Math.min(request.firstLeaseMillis(), Core.CLEANING_MILLIS));
    }
}
