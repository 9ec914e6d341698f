package dlock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;

/** How a thread enters and leaves a lock. The state is that of the current thread: {@link ThreadOwner}. */
final class ThreadLock {
    private final Core core;
    private final Request request;
    private final List<Consumer<? super LockLostException>> listeners;

    ThreadLock(Core core, Request request, List<Consumer<? super LockLostException>> listeners) {
        this.core = core;
        this.request = request;
        this.listeners = listeners;
    }

    /** Enters the lock, for the first time or again. Returns whether it was granted. */
    boolean enter(Limits limit) {
        return again(limit) || first(needed -> await(granting(needed, limit)));
    }

    /** Does the same as {@link #enter}, but an interrupt ends it. */
    boolean enterInterruptibly(Limits limit) throws InterruptedException {
        return againInterruptibly(limit) || first(needed -> awaitInterruptibly(granting(needed, limit)));
    }

    /** Leaves the lock once. Releases what no other lock of the thread needs. */
    void leave() {
        ThreadOwner.ThreadHold mine = entered();
        if (--mine.entries == 0) {
            left(mine);
        } else if (!mine.isLive()) {
            throw mine.lostOr("lost before its release");
        } else if (mine.isCounted()) {
            certainly(mine, mine.holds().get(0).leaveOnce());
        }
    }

    /** Releases what no other lock of the thread needs. */
    private void left(ThreadOwner.ThreadHold mine) {
        ThreadOwner me = core.currentOwner();
        RuntimeException failure = null;
        if (mine.uncertain || mine.holds().stream().anyMatch(Hold::isEnteredLate)) {
            // A late copy of a re-entry must not enter the next hold.
            me.leaveUnsettled();
        }
        if (!mine.isLive()) {
            me.leaveUnreleased();
        }
        for (CompletableFuture<Boolean> released : me.leaves(request)) {
            try {
                if (!Futures.join(released)) {
                    throw mine.lostOr("lost before its release");
                }
            } catch (RuntimeException e) {
                if (e instanceof UnavailableException) {
                    me.leaveUnsettled();
                } else {
                    me.leaveUnreleased();
                }
                failure = failure == null ? e : failure;
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    private Granting granting(Request needed, Limits limit) {
        core.checkOpen();
        ThreadOwner me = core.currentOwner();
        String owner = me.nameFor(needed);
        boolean isShared = me.hasSome(needed);
        return new Granting(core, needed, owner, isShared, isShared || me.mayHaveMore(), limit, Thread.currentThread(),
                listeners);
    }

    private Hold await(Granting granting) {
        Hold hold = null;
        try {
            hold = granting.await();
            return hold;
        } finally {
            settle(granting, hold);
        }
    }

    private Hold awaitInterruptibly(Granting granting) throws InterruptedException {
        Hold hold = null;
        try {
            hold = granting.awaitInterruptibly();
            return hold;
        } finally {
            settle(granting, hold);
        }
    }

    /** Gives the thread another owner name if a request under the present one may still be executed. */
    private void settle(Granting granting, Hold hold) {
        if (granting.isUnsettled(hold != null)) {
            core.currentOwner().leaveUnsettled();
        }
    }

    /** How an acquisition is waited for. */
    private interface Asking<E extends Exception> {
        Hold of(Request needed) throws E;
    }

    /**
     * Enters for the first time. Of several locks, only those are asked for that the thread has not locked. A name that
     * two locks of the thread have stays until both are unlocked.
     */
    private <E extends Exception> boolean first(Asking<E> asking) throws E {
        ThreadOwner me = core.currentOwner();
        List<Hold> covering = me.covering(request);
        checkHeld(covering);
        List<String> missing = me.missing(request);
        Hold hold = null;
        if (!missing.isEmpty()) {
            hold = asking.of(covering.isEmpty() ? request : request.only(missing));
            if (hold == null) {
                return false;
            }
            try {
                // A hold may have been lost during the wait.
                checkHeld(covering);
            } catch (LockLostException e) {
                hold.free();
                throw e;
            }
        }
        ThreadOwner.ThreadHold entered = me.enters(request, hold);
        // A hold that the thread had already tells the listeners of this lock as well, as long as the thread is in it.
        covering.forEach(one -> listeners.forEach(listener -> one.onLost(loss -> {
            if (entered.entries > 0) {
                listener.accept(loss);
            }
        })));
        return true;
    }

    private static void checkHeld(List<Hold> covering) {
        for (Hold hold : covering) {
            if (!hold.isLive()) {
                throw hold.lostOr("lost before it was entered again");
            }
        }
    }

    /** Returns the lock as the thread has entered it. Throws {@link IllegalMonitorStateException} if it has not. */
    ThreadOwner.ThreadHold entered() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        if (mine == null) {
            throw new IllegalMonitorStateException(request + " is not locked by " + Thread.currentThread());
        }
        return mine;
    }

    /** Enters once more, if the thread holds the lock. */
    private boolean again(Limits limit) {
        ThreadOwner.ThreadHold mine = held();
        if (mine == null) {
            return false;
        }
        if (mine.isCounted()) {
            certainly(mine, mine.holds().get(0).enter(request, limit.giveUp()));
        }
        mine.entries++;
        return true;
    }

    /**
     * Does the same as {@link #again}, but an interrupt ends it. The server may count the interrupted entry until the
     * last unlock.
     */
    private boolean againInterruptibly(Limits limit) throws InterruptedException {
        ThreadOwner.ThreadHold mine = held();
        if (mine == null) {
            return false;
        }
        if (mine.isCounted()) {
            CompletableFuture<Void> entering = mine.holds().get(0).enter(request, limit.giveUp());
            try {
                entering.get();
            } catch (InterruptedException e) {
                mine.uncertain = true;
                throw e;
            } catch (ExecutionException e) {
                // Throws the failure.
                certainly(mine, entering);
            }
        }
        mine.entries++;
        return true;
    }

    /** Returns the hold that the thread enters again, or {@code null}. */
    private ThreadOwner.ThreadHold held() {
        ThreadOwner.ThreadHold mine = core.currentOwner().hold(request);
        if (mine != null && !mine.isLive()) {
            throw mine.lostOr("lost before it was entered again");
        }
        return mine;
    }

    /**
     * Waits for a change of the server's count. If its outcome is unknown, only this client counts from then on. The
     * last unlock releases all entries that the server counts.
     */
    private static void certainly(ThreadOwner.ThreadHold mine, CompletableFuture<Void> change) {
        try {
            Futures.join(change);
        } catch (UnavailableException e) {
            mine.uncertain = true;
            throw e;
        }
    }
}
