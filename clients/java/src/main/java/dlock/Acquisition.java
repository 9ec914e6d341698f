package dlock;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * A request, with its owner and its {@code REQUEST}, so that the server executes one of its copies. Sends them, and
 * undoes what they may have been granted. {@link Attempt} decides what is sent.
 *
 * <p>A free lock costs one command on the shared connection. A request that waits, that binds its hold to a session,
 * or whose grant replicas must acknowledge, uses a connection of its own.
 */
final class Acquisition {
    /** A grant, as the server replied it. */
    static final class Grant {
        final long token;
        /** The number of a permit, or {@code null}. */
        final Long slot;
        /** The connection that a session hold is bound to, else {@code null}. */
        final DedicatedConnection connection;
        /** Why it is not known to be on enough replicas, else {@code null}. */
        final RuntimeException unconfirmed;

        Grant(Object reply, DedicatedConnection connection, RuntimeException unconfirmed) {
            this.token = Words.token(reply);
            this.slot = Words.slot(reply);
            this.connection = connection;
            this.unconfirmed = unconfirmed;
        }
    }

    private final Core core;
    private final Request request;
    private final String owner;
    private final boolean isOwnerFresh;
    private final String id;
    private final Limits limits;
    /**
     * Completes when an abandoned request has left the queue and holds nothing, or when the cleanup has had no answer
     * in time. Never fails.
     */
    private final CompletableFuture<Void> undone = new CompletableFuture<>();

    // Guarded by this.
    /** Whether a copy is on its way, so that its end undoes what is left. */
    private boolean isBusy;
    private boolean isAbandoned;
    private boolean isLeaving;
    private DedicatedConnection connection;
    /** Whether a copy got no answer, so that it may have been executed, or may be later. */
    private boolean isCopied;
    /** The request as it was sent last. */
    private Request latest;
    /** When the copy was sent that is on its way on {@link #connection}. */
    private long sentAt;

    /** {@code isOwnerFresh}: whether no other request has this owner. */
    Acquisition(Core core, Request request, String owner, boolean isOwnerFresh, Limits limits) {
        this.core = core;
        this.request = request;
        this.latest = request;
        this.owner = owner;
        this.isOwnerFresh = isOwnerFresh;
        this.id = core.freshId();
        this.limits = limits;
    }

    String owner() {
        return owner;
    }

    /**
     * Sends a copy. Completes with the grant, or with {@code null} for nil. Fails with {@link Unanswered} or {@link
     * ServerException}. Is canceled if the request is abandoned.
     *
     * @param its the request with the lease of this copy: in a cluster, each node has a session of its own, and a
     *     repeat may go to another node
     * @param waits whether it waits in the queue
     * @param sent called when it is about to be sent
     */
    CompletableFuture<Grant> send(Request its, boolean waits, Runnable sent) {
        CompletableFuture<Grant> answer = new CompletableFuture<>();
        synchronized (this) {
            if (isAbandoned) {
                answer.cancel(false);
                return answer;
            }
            isBusy = true;
            latest = its;
        }
        if (waits || its.isSession() || its.replicas != null) {
            queue(its, waits, sent, answer);
        } else {
            sent.run();
            core.backend.ask(its.first(), its.acquire(owner, id, true, DedicatedConnection.NOT_AT_ALL))
                    .whenComplete((reply, failed) -> {
                        note(failed);
                        ended(reply == null ? null : new Grant(reply, null, null), reply, failed, answer);
                    });
        }
        return answer;
    }

    /** Sends it on a connection of its own. */
    private void queue(Request its, boolean waits, Runnable sent, CompletableFuture<Grant> answer) {
        core.backend.dedicated(its.first()).whenComplete((taken, failed) -> {
            if (failed != null) {
                ended(null, null, failed, answer);
                return;
            }
            synchronized (this) {
                if (!isAbandoned) {
                    connection = taken;
                    sentAt = System.nanoTime();
                }
            }
            if (isAbandoned()) {
                taken.giveBack();
                undo(null);
                answer.cancel(false);
                return;
            }
            sent.run();
            asked(taken, its, waits).whenComplete((grant, refused) -> answered(taken, its, grant, refused, answer));
        });
    }

    private CompletableFuture<Grant> asked(DedicatedConnection at, Request its, boolean waits) {
        DedicatedConnection bound = its.isSession() ? at : null;
        CompletableFuture<Object> reply =
                at.request(block -> its.acquire(owner, id, true, block), limits, waits);
        if (its.replicas == null) {
            return reply.thenApply(token -> token == null ? null : new Grant(token, bound, null));
        }
        // WAIT follows the grant: behind a refusal it would wait for nothing, and hold up the next command.
        return reply.thenCompose(token -> token == null
                ? CompletableFuture.completedFuture(null)
                : waits || isCopied() ? confirmed(at, bound, token) : acknowledged(at, bound, token));
    }

    private CompletableFuture<Grant> acknowledged(
            DedicatedConnection at, DedicatedConnection bound, Object token) {
        Replicas replicas = replicas();
        return replicas.acknowledged(at).handle((acknowledged, failed) -> new Grant(
                token, bound, failed == null ? tooFew(replicas, acknowledged) : refused(failed)));
    }

    /**
     * Waits for the replicas after a grant to a request that has waited, or that a copy on another connection may have
     * got. {@code WAIT} waits for what this connection has written. A repeat writes nothing, and Redis before 7.0.12
     * does not count the grant to a waiter as a write of its connection. A renewal counts, so it is sent first.
     */
    private CompletableFuture<Grant> confirmed(DedicatedConnection at, DedicatedConnection bound, Object token) {
        return new HoldCommands(core, request.with(replicas()), owner, Words.token(token))
                .acknowledged(at, request.firstLeaseMillis())
                .handle((renewed, failed) -> {
                    Throwable reason = Futures.cause(failed);
                    return new Grant(token, bound, failed == null || reason instanceof TooFewReplicasException
                            ? (TooFewReplicasException) reason : refused(failed));
                });
    }

    /**
     * Returns the server's refusal of the command that follows a grant; the grant is then released. Throws any other
     * failure: {@link Unanswered} if the server is no primary any more, since the grant may be on another server.
     */
    private static RuntimeException refused(Throwable failed) {
        Throwable reason = Futures.cause(failed);
        if (!(reason instanceof ServerException)) {
            throw Futures.rethrown(failed);
        }
        if (Unanswered.mayRepeat(reason)) {
            throw new Unanswered(reason.getMessage(), reason);
        }
        return (ServerException) reason;
    }

    /** Returns the replicas to wait for, with the time that is left. */
    private Replicas replicas() {
        return request.replicas.within(limits.cut(request.replicas.millis, System.nanoTime()));
    }

    private TooFewReplicasException tooFew(Replicas replicas, long acknowledged) {
        return acknowledged < replicas.count ? replicas.tooFew(request.names, acknowledged) : null;
    }

    private void answered(
            DedicatedConnection at, Request its, Grant grant, Throwable refused, CompletableFuture<Grant> answer) {
        synchronized (this) {
            if (isLeaving) {
                // abandon() handles the reply.
                answer.cancel(false);
                return;
            }
            connection = null;
        }
        note(refused);
        noteOthers(at);
        if (refused != null && !(Futures.cause(refused) instanceof ServerException)) {
            if (!(Futures.cause(refused).getCause() instanceof ServerException)) {
                limits.heard(at.answered());
            }
            // The repeat is sent after the server can no longer execute this copy.
            at.leave().thenRun(() -> ended(null, null, refused, answer));
            return;
        }
        if (grant == null || grant.unconfirmed == null && !its.isSession()) {
            at.giveBack();
        } else if (grant.unconfirmed != null) {
            // The end of the connection releases a hold that is bound to it.
            at.leave();
        }
        ended(grant, grant == null ? null : grant.token, refused, answer);
    }

    /** Notes how a copy that was sent has ended. */
    private void note(Throwable failed) {
        if (failed != null && Unanswered.mayBeExecuted(Futures.cause(failed))) {
            leaveCopy();
        }
    }

    /** Notes whether a connection has sent other copies that have no answer. */
    private void noteOthers(DedicatedConnection at) {
        if (at.isCopied()) {
            leaveCopy();
        }
    }

    /** Notes that a copy may still be executed. */
    private synchronized void leaveCopy() {
        isCopied = true;
    }

    /** A copy has its end. If the request is abandoned, nothing of it may be left. */
    private void ended(Grant grant, Object token, Throwable failed, CompletableFuture<Grant> answer) {
        boolean isKept;
        synchronized (this) {
            isBusy = false;
            isKept = !isAbandoned;
        }
        if (!isKept) {
            answer.cancel(false);
            if (grant != null && grant.connection != null) {
                grant.connection.leave().thenRun(() -> undo(token));
            } else {
                undo(failed == null ? token : null);
            }
        } else if (failed != null) {
            answer.completeExceptionally(Futures.cause(failed));
        } else {
            answer.complete(grant);
        }
    }

    /** Returns the last time at which the server that has the request answered; {@code null}: not since it was sent. */
    synchronized Long answered() {
        return connection == null || connection.answered() - sentAt < 0 ? null : (Long) connection.answered();
    }

    /**
     * Gives the request up.
     *
     * @param mayBeLeft whether it may wait or be granted
     * @return completes as {@link #undone} does
     */
    CompletableFuture<Void> abandon(boolean mayBeLeft) {
        DedicatedConnection left;
        synchronized (this) {
            if (isAbandoned) {
                return undone;
            }
            isAbandoned = true;
            left = connection;
            isLeaving = left != null;
            if (left == null && isBusy) {
                // The copy that is on its way sees the flag. It lasts one reply timeout at most.
                return undone;
            }
        }
        if (left != null) {
            left.leave(isOwnerFresh ? releases(null) : List.of()).thenAccept(token -> {
                noteOthers(left);
                undo(token);
            });
        } else if (mayBeLeft || isCopied()) {
            undo(null);
        } else {
            undone.complete(null);
        }
        return undone;
    }

    /** Gives back a grant that nobody wants. Completes as {@link #undone} does. */
    CompletableFuture<Void> giveBack(Grant grant) {
        synchronized (this) {
            isAbandoned = true;
        }
        if (grant.connection == null) {
            undo(grant.token);
        } else {
            grant.connection.leave().thenRun(() -> undo(grant.token));
        }
        return undone;
    }

    /** Returns whether a copy got no answer, so that it may still be executed. */
    synchronized boolean isCopied() {
        return isCopied;
    }

    private synchronized boolean isAbandoned() {
        return isAbandoned;
    }

    /** Releases the hold that may have been granted. The token is {@code null} if the outcome is unknown. */
    private void undo(Object token) {
        if (core.isClosed()) {
            undone.complete(null);
            return;
        }
        undoing(token, cleaning()).whenComplete((done, failed) -> {
            Request its;
            synchronized (this) {
                its = latest;
            }
            // Without a reply, the hold lapses, unless its session keeps it.
            if (failed != null && its.lease.session != null) {
                its.lease.session.owe(() -> isOwnerInUse()
                        ? CompletableFuture.failedFuture(new Unanswered("its owner has come again", null))
                        : undoing(token, cleaning()));
            }
            if (isCopied()) {
                core.releases.late(owner, its, 0);
            }
            undone.complete(null);
        });
    }

    /** Returns whether the owner has one of the locks again, or asks for it. */
    private boolean isOwnerInUse() {
        return request.names.stream().anyMatch(name -> core.isInUse(owner, name, request.mode.side));
    }

    private CompletableFuture<Void> undoing(Object token, Deadline until) {
        if (token != null || isOwnerFresh) {
            return release(Words.token(token), until);
        }
        // The release needs the token of this request. The repeat without BLOCK returns it, or adds an entry that is
        // released below.
        byte[][] repeat = request.acquire(owner, id, false, DedicatedConnection.NOT_AT_ALL);
        return core.repeat(request.first(), repeat, until).whenComplete((answer, failed) -> {
            if (failed != null || answer.repeated) {
                leaveCopy();
            }
        }).thenCompose(answer -> answer.reply == null
                ? CompletableFuture.completedFuture(null)
                : release(Words.token(answer.reply), until));
    }

    private CompletableFuture<Void> release(Long token, Deadline until) {
        List<CompletableFuture<?>> released = new ArrayList<>();
        Iterator<String> names = request.names.iterator();
        releases(token).forEach(release -> released.add(release(names.next(), release, until)));
        return Futures.all(released);
    }

    private CompletableFuture<?> release(String name, byte[][] release, Deadline until) {
        CompletableFuture<Void> never = new CompletableFuture<>();
        return core.repeat(() -> core.releases.send(owner, name, release, never), until);
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
