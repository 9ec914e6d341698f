package dlock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * The owner name of a thread, and the locks that the thread holds. Only the thread itself uses this object; listeners
 * for losses also read {@link ThreadHold#entries}.
 *
 * <p>Locks may overlap: {@code lock("a")} inside {@code lock("a", "b")}. The server grants each lock name to the thread
 * once, and the thread keeps the name for as long as one of its locks needs it.
 */
final class ThreadOwner {
    private final Supplier<String> names;
    private final Map<Key, ThreadHold> holds = new HashMap<>();
    private final List<Granted> grants = new ArrayList<>();
    /** The owner name of the latest acquisition. */
    private String name;
    /** Whether a request with this owner name was not answered, and so may still be executed. */
    private boolean unsettled;
    /** Whether the server may still have a hold with this owner name that the thread has left: no answer said otherwise. */
    private boolean unreleased;

    ThreadOwner(Supplier<String> names) {
        this.names = names;
    }

    /**
     * Returns the owner name for an acquisition. All locks that the thread holds at a time have the same owner, so that
     * the server can find deadlocks. A thread that holds nothing gets a new owner name, and so does one with an
     * unanswered request: a late copy of that request then cannot affect the new hold. The read side and the write side
     * of a lock have the same owner, so that upgrades and downgrades work. After a hold that is lost, and not left, the
     * other side gets a new owner: releases of the lost one may still come.
     *
     * @param request a request without the names that the thread already holds on the same side
     */
    String nameFor(Request request) {
        boolean isLost = false;
        for (Granted granted : grants) {
            if (granted.hasSome(request)) {
                if (granted.hold.isLive()) {
                    return granted.hold.owner();
                }
                isLost = true;
            }
        }
        if (grants.isEmpty() || unsettled || isLost) {
            name = names.get();
            unsettled = false;
            unreleased = false;
        }
        return name;
    }

    /** Returns whether a hold of this thread, which is not lost, has one of the names, on either side. */
    boolean hasSome(Request request) {
        return grants.stream().anyMatch(granted -> granted.hasSome(request) && granted.hold.isLive());
    }

    /** Records that a request of this thread was not answered: the next acquisition gets a new owner name. */
    void leaveUnsettled() {
        unsettled = true;
    }

    /** Records that the thread has left a hold which the server may still have: the next acquisition may enter it again. */
    void leaveUnreleased() {
        unreleased = true;
    }

    /** Returns whether the server may have a hold with the present owner name that the thread has left. */
    boolean mayHaveMore() {
        return unreleased;
    }

    /** Returns the lock with these names and this side as the thread has entered it, or {@code null} if it has not. */
    ThreadHold hold(Request request) {
        return holds.get(new Key(request));
    }

    /** Returns the holds of this thread that have at least one of the names, on the same side. */
    List<Hold> covering(Request request) {
        List<Hold> covering = new ArrayList<>();
        for (Granted granted : grants) {
            if (granted.covers(request)) {
                covering.add(granted.hold);
            }
        }
        return covering;
    }

    /** Returns the names of the request that no hold of this thread has on the same side. */
    List<String> missing(Request request) {
        List<String> missing = new ArrayList<>(request.names);
        for (Granted granted : grants) {
            if (granted.covers(request)) {
                missing.removeAll(granted.uses.keySet());
            }
        }
        return missing;
    }

    /** Records the first entry of a lock. {@code hold}: its grant; {@code null} if the thread held all of the names. */
    ThreadHold enters(Request request, Hold hold) {
        if (hold != null) {
            grants.add(new Granted(hold, request.mode.side));
        }
        List<Granted> parts = new ArrayList<>();
        for (Granted granted : grants) {
            if (granted.covers(request)) {
                granted.use(request.names, 1);
                parts.add(granted);
            }
        }
        ThreadHold entered = new ThreadHold(parts);
        holds.put(new Key(request), entered);
        return entered;
    }

    /** Records that the thread has left a lock. Returns the releases of the names that no other lock of it needs. */
    List<CompletableFuture<Boolean>> leaves(Request request) {
        List<CompletableFuture<Boolean>> released = new ArrayList<>();
        for (Granted part : holds.remove(new Key(request)).parts) {
            part.use(request.names, -1);
            List<String> unused = part.unused();
            part.uses.keySet().removeAll(unused);
            if (part.uses.isEmpty()) {
                grants.remove(part);
            }
            released.add(part.hold.releaseNames(unused));
        }
        return released;
    }

    /** The names that one request got from the server, and how many locks of the thread use each of them. */
    private static final class Granted {
        final Hold hold;
        final String side;
        final Map<String, Integer> uses = new HashMap<>();

        Granted(Hold hold, String side) {
            this.hold = hold;
            this.side = side;
            hold.names().forEach(name -> uses.put(name, 0));
        }

        boolean hasSome(Request request) {
            return request.names.stream().anyMatch(uses::containsKey);
        }

        boolean covers(Request request) {
            return side.equals(request.mode.side) && hasSome(request);
        }

        void use(List<String> some, int change) {
            some.forEach(name -> uses.computeIfPresent(name, (same, count) -> count + change));
        }

        List<String> unused() {
            List<String> unused = new ArrayList<>(uses.keySet());
            unused.removeIf(name -> uses.get(name) > 0);
            return unused;
        }
    }

    /** A lock that the thread has entered, the grants that it consists of, and how often the thread has entered it. */
    static final class ThreadHold {
        private final List<Granted> parts;
        /** Volatile because a listener for a loss reads it in another thread. */
        volatile int entries = 1;
        /** Whether the server's count may differ from {@link #entries}, because a reply is missing. */
        boolean uncertain;

        private ThreadHold(List<Granted> parts) {
            this.parts = parts;
        }

        /** Returns the holds of this lock. */
        List<Hold> holds() {
            List<Hold> all = new ArrayList<>();
            parts.forEach(part -> all.add(part.hold));
            return all;
        }

        boolean isHeld() {
            return parts.stream().allMatch(part -> part.hold.isHeld());
        }

        /** Returns whether no part is released or known to be lost. */
        boolean isLive() {
            return parts.stream().allMatch(part -> part.hold.isLive());
        }

        /** Returns the greatest token, that of the last grant: since then, this thread has all names of the lock. */
        long fencingToken() {
            return parts.stream().mapToLong(part -> part.hold.fencingToken()).max().orElseThrow();
        }

        /** Returns an exception with the reason why a part was lost, or with {@code otherwise} if none is known. */
        LockLostException lostOr(String otherwise) {
            return parts.stream().map(part -> part.hold).filter(hold -> !hold.isLive()).findFirst()
                    .orElse(parts.get(0).hold).lostOr(otherwise);
        }

        /**
         * Returns whether re-entries are sent to the server, which counts them. The server counts only the entries of a
         * single name. If its count is uncertain, only this object counts.
         */
        boolean isCounted() {
            if (parts.size() > 1 || uncertain) {
                return false;
            }
            Hold hold = parts.get(0).hold;
            return hold.isOfOneName() && !hold.isLeftLate();
        }
    }

    /** The names of a lock, and the side on which it is held. The exclusive mode and the write mode are one side. */
    private static final class Key {
        private final Set<String> names;
        private final String side;

        Key(Request request) {
            names = new HashSet<>(request.names);
            side = request.mode.side;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key && ((Key) other).names.equals(names) && ((Key) other).side.equals(side);
        }

        @Override
        public int hashCode() {
            return Objects.hash(names, side);
        }
    }
}
