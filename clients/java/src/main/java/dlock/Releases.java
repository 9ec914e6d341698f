package dlock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The releases that could end a later hold of their owner, and those of late copies. A thread that holds one side of a
 * lock for readers and writers acquires the other side under the same owner again and again. So no copy of an earlier
 * release is sent while the owner has such a hold or asks for one, and a request waits for the copies that were sent
 * before it.
 */
final class Releases {
    /** How long after its end the last commands of a connection may be executed: on the same machine, and at most. */
    static final long[] SEES_AN_END_MILLIS = {20, 1000};
    /** How long a session tries, each time, to repeat a release that failed. */
    static final long REPAYING_MILLIS = 1000;

    private final Core core;
    /** The ends of the releases that may still be executed, by owner. */
    private final Map<String, CompletableFuture<Void>> open = new ConcurrentHashMap<>();
    /** The holds whose release failed, and is repeated. Each stays for as long as its repeats need it. */
    private final Set<HoldCommands> failed =
            Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));
    /** The releases of late copies that are to come or have no answer. */
    private final Set<CompletableFuture<Void>> late = ConcurrentHashMap.newKeySet();

    Releases(Core core) {
        this.core = core;
    }

    /** Completes when no release of this owner may be executed any more. Never fails. */
    CompletableFuture<Void> settled(String owner) {
        return open.getOrDefault(owner, CompletableFuture.completedFuture(null));
    }

    /** Has the next request of this owner wait for an end. */
    void opens(String owner, CompletableFuture<?> end) {
        CompletableFuture<Void> all = open.merge(owner, end.handle((done, failed) -> null),
                (before, its) -> Futures.all(List.of(before, its)));
        all.thenRun(() -> open.remove(owner, all));
    }

    /** Notes that the release of a hold has failed. */
    void fails(HoldCommands hold) {
        failed.add(hold);
    }

    /** Notes a hold, whose own release takes the place of one that failed for the same grant. */
    void begins(HoldCommands hold) {
        synchronized (failed) {
            failed.forEach(before -> before.entered(hold));
        }
    }

    /**
     * Sends a copy of a release. Without an answer, the next request of its owner waits until the server can no longer
     * execute the copy, or until {@code over}.
     */
    CompletableFuture<Object> send(String owner, String name, byte[][] release, CompletableFuture<?> over) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        opens(owner, end);
        return sent(name, release, end, over);
    }

    /** The same, but fails with {@link Unanswered} if the owner has a hold of this side again, or asks for one. */
    CompletableFuture<Object> sendAgain(
            String owner, String name, String side, byte[][] release, CompletableFuture<?> over) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        // Is noted first: a request that begins now waits for this copy, or is seen below.
        opens(owner, end);
        if (core.isInUse(owner, name, side)) {
            end.complete(null);
            return CompletableFuture.failedFuture(new Unanswered("its owner asks for the lock again", null));
        }
        return sent(name, release, end, over);
    }

    private CompletableFuture<Object> sent(
            String name, byte[][] release, CompletableFuture<Void> end, CompletableFuture<?> over) {
        over.whenComplete((done, failed) -> end.complete(null));
        return core.backend.ask(name, release).whenComplete((reply, failed) -> {
            if (failed != null && Unanswered.mayBeExecuted(Futures.cause(failed))) {
                Futures.after(SEES_AN_END_MILLIS[1]).thenRun(() -> end.complete(null));
            } else {
                end.complete(null);
            }
        });
    }

    /**
     * Releases what a late copy of a request takes if it is executed after the end of the request or of its hold.
     *
     * @param stays how many ms the server still keeps the hold. A client that is closed does not wait for the end of a
     *     hold that stays for longer than a copy may take: a copy that is executed before takes nothing
     */
    void late(String owner, Request request, long stays) {
        for (String name : request.names) {
            for (long pause : SEES_AN_END_MILLIS) {
                CompletableFuture<Void> done = new CompletableFuture<>();
                if (stays < SEES_AN_END_MILLIS[1]) {
                    late.add(done);
                    done.whenComplete((none, failed) -> late.remove(done));
                }
                later(owner, request, name, stays + pause, done);
            }
        }
    }

    private void later(String owner, Request request, String name, long pause, CompletableFuture<Void> done) {
        Futures.after(pause).thenRun(() -> {
            if (core.isClosed()) {
                done.complete(null);
            } else if (core.isInUse(owner, name, request.mode.side)) {
                later(owner, request, name, SEES_AN_END_MILLIS[1], done);
            } else {
                releaseLate(owner, request, name, core.patience()).whenComplete((reply, failed) -> {
                    if (failed != null && core.isInUse(owner, name, request.mode.side)) {
                        later(owner, request, name, SEES_AN_END_MILLIS[1], done);
                        return;
                    }
                    if (failed != null) {
                        owe(owner, request, name);
                    }
                    done.complete(null);
                });
            }
        });
    }

    /** Has the session of the request repeat such a release: otherwise it would keep what a late copy takes. */
    private void owe(String owner, Request request, String name) {
        if (request.lease.session != null) {
            request.lease.session.owe(() -> core.isInUse(owner, name, request.mode.side)
                    ? CompletableFuture.failedFuture(new Unanswered("its owner has come again", null))
                    : releaseLate(owner, request, name, Deadline.afterMillis(REPAYING_MILLIS)));
        }
    }

    private CompletableFuture<?> releaseLate(String owner, Request request, String name, Deadline giveUp) {
        byte[][] release = Words.command("DLOCK.RELEASE", name, owner, request.mode.side, "ALL");
        CompletableFuture<Void> never = new CompletableFuture<>();
        return core.repeat(() -> sendAgain(owner, name, request.mode.side, release, never), giveUp)
                .exceptionally(failed -> HoldCommands.nilIfGone(failed, null));
    }

    /** Returns the releases of late copies that are to come. */
    List<CompletableFuture<?>> left() {
        return new ArrayList<>(late);
    }
}
