package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * One acquisition, however often it has to be sent: with the same {@code REQUEST}, so that a repeat gets the place or
 * the grant of the first.
 *
 * <p>A lock that is free costs one command on the shared connection. Otherwise the request waits on a line of its own.
 * So does one whose hold is to be bound to its connection.
 */
final class Acquisition {
    /** What was granted. */
    static final class Grant {
        final long token;
        /** When the command that was granted was sent, by {@link System#nanoTime}. */
        final long sent;
        /** The line that the hold is bound to, if it is a session. */
        final Line line;

        Grant(long token, long sent, Line line) {
            this.token = token;
            this.sent = sent;
            this.line = line;
        }
    }

    /** A try that lasted longer found a server that worked. */
    private static final long WORKED_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Core core;
    private final Request request;
    private final String owner;
    private final String id;
    private final Deadline end;
    /** The grant, or {@code null}: not in time. Fails with {@link DLockException} or is cancelled. */
    private final CompletableFuture<Grant> result = new CompletableFuture<>();
    /** Completes when nothing is left behind of an acquisition that was abandoned. */
    private final CompletableFuture<Void> undone = new CompletableFuture<>();

    // Guarded by this.
    private boolean decided;
    private boolean abandoned;
    private boolean leaving;
    private Line line;
    /** When to give up, if no server answers now. */
    private Deadline outage;
    private int failures;

    Acquisition(Core core, Request request, String owner, Deadline end) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.id = core.freshId();
        this.end = end;
    }

    CompletableFuture<Grant> start() {
        if (request.isSession()) {
            stand();
        } else {
            attempt();
        }
        return result;
    }

    CompletableFuture<Grant> result() {
        return result;
    }

    /**
     * Gives up. The result is cancelled, unless it is there already, and the caller's then.
     *
     * @return completes when the request has left the queue and holds nothing. Never fails
     */
    CompletableFuture<Void> abandon() {
        Line left;
        synchronized (this) {
            if (decided) {
                return result.handle((grant, failed) -> null);
            }
            if (abandoned) {
                return undone;
            }
            abandoned = true;
            left = line;
            leaving = left != null;
        }
        if (left != null) {
            left.leave().thenAccept(this::undo);
        }
        // Otherwise the step that is under way sees it. It takes as long as a server may take to answer.
        result.completeExceptionally(new CancellationException());
        return undone;
    }

    /** Asks for a lock that is probably free. */
    private void attempt() {
        long sent = System.nanoTime();
        core.backend.ask(request.first(), command(Line.NOT_AT_ALL)).whenComplete((reply, failed) -> {
            if (isAbandoned()) {
                undo(failed == null ? reply : null);
            } else if (failed != null) {
                failed(Futures.cause(failed), 0);
            } else if (reply != null) {
                granted(new Grant(Words.number(reply), sent, null));
            } else if (end.hasPassed()) {
                finish(null);
            } else {
                stand();
            }
        });
    }

    /** Waits in the queue. */
    private void stand() {
        core.backend.line(request.first()).whenComplete((taken, failed) -> {
            if (failed != null) {
                if (isAbandoned()) {
                    undo(null);
                } else {
                    failed(Futures.cause(failed), 0);
                }
                return;
            }
            CompletableFuture<Object> reply;
            long sent;
            synchronized (this) {
                if (!abandoned) {
                    line = taken;
                    sent = System.nanoTime();
                    reply = taken.request(this::command, end);
                } else {
                    sent = 0;
                    reply = null;
                }
            }
            if (reply == null) {
                taken.giveBack();
                undo(null);
            } else {
                reply.whenComplete((token, refused) -> answered(taken, sent, token, refused));
            }
        });
    }

    private void answered(Line at, long sent, Object token, Throwable refused) {
        synchronized (this) {
            if (leaving) {
                // The line has been left, and what came is undone.
                return;
            }
            line = null;
        }
        if (refused != null) {
            Throwable reason = Futures.cause(refused);
            if (reason instanceof ServerException) {
                at.giveBack();
                failed(reason, System.nanoTime() - sent);
            } else {
                long stood = System.nanoTime() - sent;
                // Where nothing more can be executed before it is sent again.
                at.leave().thenRun(() -> {
                    if (isAbandoned()) {
                        undo(null);
                    } else {
                        failed(reason, stood);
                    }
                });
            }
        } else if (token != null && request.isSession()) {
            granted(new Grant(Words.number(token), sent, at));
        } else {
            at.giveBack();
            if (token != null) {
                granted(new Grant(Words.number(token), sent, null));
            } else if (end.isNever()) {
                // An operator has ended the wait, but nobody here said that it may end.
                again(0);
            } else {
                finish(null);
            }
        }
    }

    /** {@code stoodNanos}: how long the request stood in the queue before that. */
    private void failed(Throwable reason, long stoodNanos) {
        boolean held = reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE");
        if (held && core.besideMillis > 0) {
            if (end.hasPassed()) {
                finish(null);
            } else {
                again(Math.min(core.besideMillis, end.leftMillis()));
            }
            return;
        }
        if (!Unanswered.mayRepeat(reason)) {
            finish(reason instanceof RuntimeException ? (RuntimeException) reason : core.unavailable(reason));
            return;
        }
        long pause;
        boolean over;
        synchronized (this) {
            if (outage == null || stoodNanos > WORKED_NANOS) {
                outage = core.patience();
                failures = 0;
            }
            pause = Core.pauseMillis(failures++);
            over = outage.leftMillis() <= pause;
        }
        // After the time to wait there is one more try, to learn what became of the last one.
        if (core.isClosed() || over) {
            finish(core.unavailable(reason));
            undo(null);
        } else {
            again(pause);
        }
    }

    private void again(long pauseMillis) {
        Futures.after(pauseMillis).thenRun(() -> {
            if (isAbandoned()) {
                undo(null);
            } else if (core.isClosed()) {
                finish(core.unavailable(new Unanswered("the client is closed", null)));
            } else {
                stand();
            }
        });
    }

    private byte[][] command(long block) {
        return request.acquire(owner, id, request.isSession(), block);
    }

    private synchronized boolean isAbandoned() {
        return abandoned;
    }

    private void granted(Grant grant) {
        if (decide()) {
            result.complete(grant);
        } else if (grant.line == null) {
            undo(grant.token);
        } else {
            grant.line.leave().thenRun(() -> undo(grant.token));
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

    /** From here on it can no longer be abandoned, unless it was before: then returns false. */
    private synchronized boolean decide() {
        decided = !abandoned;
        return decided;
    }

    /** Gives back what may have been granted. Whoever waits has no other hold of that side. */
    private void undo(Object token) {
        if (core.isClosed()) {
            undone.complete(null);
            return;
        }
        List<CompletableFuture<?>> releases = new ArrayList<>();
        for (String name : request.names) {
            List<Object> words = new ArrayList<>(List.of("DLOCK.RELEASE", name, owner, request.mode.side, "ALL"));
            if (token != null) {
                words.addAll(List.of("TOKEN", Words.number(token)));
            }
            Deadline lapsed = Deadline.afterMillis(Math.min(request.lease.millis, core.patienceMillis));
            releases.add(core.repeat(name, Words.command(words.toArray()), lapsed));
        }
        // What cannot be given back ends with its lease.
        Futures.all(releases).whenComplete((done, failed) -> undone.complete(null));
    }
}
