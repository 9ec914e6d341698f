package dlock;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/** The commands on a hold. Of several locks, each command is sent once for each name. */
final class HoldCommands {
    final Core core;
    final Request request;
    final String owner;
    final long token;
    /** The names that are not released. */
    private volatile List<String> names;
    /** Whether the owner has entered the same grant again after its release failed. */
    private volatile boolean isEnteredAgain;

    HoldCommands(Core core, Request request, String owner, long token) {
        this.core = core;
        this.request = request;
        this.owner = owner;
        this.token = token;
        this.names = request.names;
    }

    List<String> names() {
        return names;
    }

    /** Leaves these names out of all commands from now on. */
    synchronized void drop(List<String> some) {
        List<String> left = new ArrayList<>(names);
        left.removeAll(some);
        names = List.copyOf(left);
    }

    /**
     * Asks for the milliseconds that are left.
     *
     * @param at the session's own connection, to detect that it is dead; {@code null} for the shared one
     * @return completes with {@code null} if the server has no such hold
     */
    CompletableFuture<Long> check(DedicatedConnection at) {
        return each(at, this::checkOf);
    }

    /** Asks for the milliseconds that are left, and repeats unanswered commands. */
    CompletableFuture<Long> check(Deadline giveUp) {
        return each(name -> core.repeat(name, checkOf(name), giveUp).thenApply(answer -> answer.reply));
    }

    /**
     * Renews the hold. If replicas must acknowledge that, too few of them are a {@link TooFewReplicasException}.
     *
     * @param at the session's own connection, or {@code null}
     * @return completes with {@code null} if the server has no such hold
     */
    CompletableFuture<Long> renew(DedicatedConnection at, long millis) {
        if (request.replicas == null) {
            return each(at, name -> renewalOf(name, millis));
        }
        if (at != null) {
            return acknowledged(at, millis);
        }
        return core.backend.dedicated(request.first()).thenCompose(taken ->
                acknowledged(taken, millis).whenComplete((renewed, failed) -> taken.giveBack()));
    }

    /** Renews the hold. {@code onOther}: not on the shared connection, which may lead to a server that hangs. */
    CompletableFuture<Long> renewed(boolean onOther, long millis) {
        return !onOther || request.replicas != null
                ? renew(null, millis)
                : core.backend.dedicated(request.first()).thenCompose(taken ->
                        each(taken, name -> renewalOf(name, millis)).whenComplete((renewed, failed) -> taken.giveBack()));
    }

    /** Renews the hold, then waits for the replicas. */
    CompletableFuture<Long> acknowledged(DedicatedConnection at, long millis) {
        return each(at, name -> renewalOf(name, millis)).thenCompose(renewed -> renewed == null
                ? CompletableFuture.completedFuture(null)
                : request.replicas.acknowledged(at).thenApply(
                        acknowledged -> request.replicas.confirmed(request.names, renewed, acknowledged)));
    }

    /**
     * Binds the hold to this connection, and sets its lease. Completes with {@code null} if the server has no such hold.
     * Without a reply, the connection stays open.
     */
    CompletableFuture<Long> bind(DedicatedConnection at, long millis) {
        return each(name -> at.askPatiently(Words.command(
                "DLOCK.RENEW", name, owner, request.mode.side, "SESSION", "TOKEN", token, "PX", millis)));
    }

    /** Binds the hold to a named session. Completes with {@code null} if the server has no such hold. */
    CompletableFuture<Long> bindTo(String session) {
        return each(null, name ->
                Words.command("DLOCK.RENEW", name, owner, request.mode.side, "SESSIONID", session, "TOKEN", token));
    }

    /**
     * Asks how many milliseconds the hold may still last, even if it is renewed: {@link Long#MAX_VALUE} without a cap,
     * or if the user may not ask. Completes with {@code null} if the server has no such hold.
     */
    CompletableFuture<Long> cap(Deadline giveUp) {
        return each(name -> core.repeat(name, Words.command("DLOCK.INFO", name, "OWNER", owner), giveUp)
                .thenApply(answer -> (Object) capIn(answer.reply)))
                .exceptionally(failed -> {
                    Throwable reason = Futures.cause(failed);
                    if (reason instanceof ServerException && ((ServerException) reason).code().equals("NOPERM")) {
                        return Long.MAX_VALUE;
                    }
                    throw Futures.rethrown(reason);
                });
    }

    private Long capIn(Object reply) {
        Object holds = Holder.field(reply, "holds");
        for (Object hold : holds instanceof List ? (List<?>) holds : List.of()) {
            if (Words.number(Holder.field(hold, "token")) == token) {
                Long cap = Words.number(Holder.field(hold, "cap"));
                return cap == null ? Long.MAX_VALUE : cap;
            }
        }
        return null;
    }

    /** Sets the lease, with repeats. Completes with whether every name was held. */
    CompletableFuture<Boolean> leaveTo(long millis) {
        return leaveTo(names, millis);
    }

    /** Sets the lease of some of the names, with repeats. Completes with whether all of these were held. */
    CompletableFuture<Boolean> leaveTo(List<String> some, long millis) {
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        some.forEach(name -> all.add(core.repeat(name, renewalOf(name, millis), core.patience())
                .thenApply(answer -> answer.reply != null)
                .exceptionally(failed -> nilIfGone(failed, false))));
        return Futures.all(all).thenApply(done -> all.stream().allMatch(CompletableFuture::join));
    }

    /**
     * Releases all entries of some names. Completes with whether none of them was lost.
     *
     * @param wasCertain the hold was certain before: then a repeat that finds nothing finds what the first copy has done
     */
    CompletableFuture<Boolean> releaseAll(List<String> some, Deadline lapsed, boolean wasCertain) {
        return releaseAll(some, lapsed, wasCertain, false);
    }

    /** Releases them some time after the end of the hold: its owner may have the lock again, with the same token. */
    CompletableFuture<Boolean> releaseAllAgain(List<String> some, Deadline lapsed) {
        return releaseAll(some, lapsed, false, true);
    }

    private CompletableFuture<Boolean> releaseAll(
            List<String> some, Deadline lapsed, boolean wasCertain, boolean isAgain) {
        List<CompletableFuture<Boolean>> all = new ArrayList<>();
        for (String name : some) {
            byte[][] command =
                    Words.command("DLOCK.RELEASE", name, owner, request.mode.side, "ALL", "TOKEN", token);
            AtomicBoolean again = new AtomicBoolean(isAgain);
            // After an answer, no hold has this token, and a late copy finds nothing.
            CompletableFuture<Void> over = new CompletableFuture<>();
            all.add(core.repeat(() -> again.getAndSet(true)
                            ? releaseAgain(name, command, over)
                            : core.releases.send(owner, name, command, over), lapsed)
                    .thenApply(answer -> {
                        over.complete(null);
                        return answer.reply != null || answer.repeated && wasCertain && !lapsed.hasPassed();
                    })
                    .exceptionally(failed -> nilIfGone(failed, false)));
        }
        return Futures.all(all).thenApply(done -> all.stream().allMatch(CompletableFuture::join));
    }

    /** Repeats a release. If the owner has entered the same grant again, the release of that hold is the answer. */
    private CompletableFuture<Object> releaseAgain(String name, byte[][] command, CompletableFuture<Void> over) {
        core.releases.fails(this);
        return isEnteredAgain
                ? CompletableFuture.completedFuture(0L)
                : core.releases.sendAgain(owner, name, request.mode.side, command, over);
    }

    /** Notes that a hold begins, perhaps of the same grant. */
    void entered(HoldCommands hold) {
        if (hold != this && hold.token == token && hold.owner.equals(owner)
                && hold.request.mode.side.equals(request.mode.side) && hold.names.equals(names)) {
            isEnteredAgain = true;
        }
    }

    /** Returns whether the owner has one of these names again, by another grant, or asks for it. */
    boolean isInUse(List<String> some) {
        return !isEnteredAgain && some.stream().anyMatch(name -> core.isInUse(owner, name, request.mode.side));
    }

    /** Releases one entry, or some of the permits. Completes with the reply, and with whether a copy had no answer. */
    CompletableFuture<Core.Answer<Long>> releaseSome(Object... options) {
        List<Object> words = new ArrayList<>(List.of("DLOCK.RELEASE", request.first(), owner, request.mode.side));
        words.addAll(List.of(options));
        words.addAll(List.of("TOKEN", token, "REQUEST", core.freshId()));
        return core.repeat(request.first(), Words.command(words.toArray()), core.patience())
                .thenApply(answer -> new Core.Answer<>(Words.number(answer.reply), answer.repeated));
    }

    /** Enters once more. Completes with the token or {@code null}, and with whether a copy had no answer. */
    CompletableFuture<Core.Answer<Long>> enter(Request again, Deadline giveUp) {
        byte[][] command = again.acquire(owner, core.freshId(), false, DedicatedConnection.NOT_AT_ALL);
        return core.repeat(request.first(), command, giveUp)
                .thenApply(answer -> new Core.Answer<>(Words.number(answer.reply), answer.repeated));
    }

    /**
     * Releases what a late copy of the acquisition, or of a re-entry, takes if it is executed after the release of this
     * hold, which the server still keeps for {@code stays} ms.
     */
    void releaseLate(long stays) {
        core.releases.late(owner, request, stays);
    }

    /** Releases a hold that this owner got instead of this one. Never fails. */
    CompletableFuture<Void> releaseOther(long other) {
        byte[][] command = Words.command(
                "DLOCK.RELEASE", request.first(), owner, request.mode.side, "ALL", "TOKEN", other);
        return core.repeat(request.first(), command, core.patience()).handle((done, failed) -> null);
    }

    private byte[][] checkOf(String name) {
        return Words.command("DLOCK.CHECK", name, token);
    }

    private byte[][] renewalOf(String name, long millis) {
        return Words.command("DLOCK.RENEW", name, owner, request.mode.side, "TOKEN", token, "PX", millis);
    }

    private CompletableFuture<Long> each(DedicatedConnection at, Function<String, byte[][]> of) {
        return each(name -> at != null ? at.ask(of.apply(name)) : core.backend.ask(name, of.apply(name)));
    }

    /**
     * Asks for every name. Completes with the smallest reply, or with {@code null} if one is nil. The reply for a
     * name that was released meanwhile does not count.
     */
    private CompletableFuture<Long> each(Function<String, CompletableFuture<Object>> ask) {
        Map<String, CompletableFuture<Object>> replies = new LinkedHashMap<>();
        names.forEach(name -> replies.put(name, ask.apply(name)));
        return Futures.all(List.copyOf(replies.values())).thenApply(done -> {
            replies.keySet().retainAll(names);
            Long least = Long.MAX_VALUE;
            for (CompletableFuture<Object> reply : replies.values()) {
                Long number = Words.number(reply.join());
                if (number == null) {
                    return null;
                }
                least = Math.min(least, number);
            }
            return least;
        }).exceptionally(failed -> nilIfGone(failed, null));
    }

    /** A key of another type has no such hold. */
    static <T> T nilIfGone(Throwable failed, T nil) {
        Throwable reason = Futures.cause(failed);
        if (reason instanceof ServerException && ((ServerException) reason).code().equals("WRONGTYPE")) {
            return nil;
        }
        throw Futures.rethrown(reason);
    }
}
