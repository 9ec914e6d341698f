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
 * The owner name of a thread, and the locks that it holds. Only this thread uses it.
 *
 * <p>Locks may overlap: {@code lock("a")} inside {@code lock("a", "b")}. The server grants each name to the thread once,
 * and a name stays for as long as a lock of the thread needs it.
 */
final class ThreadOwner {
    private final Supplier<String> names;
    private final Map<Key, ThreadHold> holds = new HashMap<>();
    private final List<Granted> grants = new ArrayList<>();
    private String name;
    /** Whether a request of this name may still be executed, because it was not answered. */
    private boolean unsettled;

    ThreadOwner(Supplier<String> names) {
        this.names = names;
    }

    /**
     * Returns the owner name for an acquisition. All locks that the thread holds at a time have the same name, so that
     * the server can find deadlocks. A thread that holds nothing gets a new name, and so does one with an unanswered
     * request: a late copy of that request then cannot affect the new hold. The two modes of a lock share a name.
     *
     * @param request only names that the thread does not hold on its side
     */
    String nameFor(Request request) {
        for (Granted granted : grants) {
            if (request.names.stream().anyMatch(granted.uses::containsKey)) {
                return granted.hold.owner();
            }
        }
        if (grants.isEmpty() || unsettled) {
            name = names.get();
            unsettled = false;
        }
        return name;
    }

    /** Records that a request of this thread was not answered. */
    void leaveUnsettled() {
        unsettled = true;
    }

    ThreadHold hold(Request request) {
        return holds.get(new Key(request));
    }

    /** Returns the holds of this thread that have some of the names, on the same side. */
    List<Hold> covering(Request request) {
        List<Hold> covering = new ArrayList<>();
        for (Granted granted : grants) {
            if (granted.covers(request)) {
                covering.add(granted.hold);
            }
        }
        return covering;
    }

    /** Returns the names of the request that no hold of this thread has. */
    List<String> missing(Request request) {
        List<String> missing = new ArrayList<>(request.names);
        for (Granted granted : grants) {
            if (granted.covers(request)) {
                missing.removeAll(granted.uses.keySet());
            }
        }
        return missing;
    }

    /** Enters a lock for the first time. {@code hold}: what was granted for it, or {@code null}. */
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

    /** Leaves a lock for good. Returns the releases of what no other lock of the thread needs. */
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

    /** The names that the server granted the thread at once, and how many of its locks use each. */
    private static final class Granted {
        final Hold hold;
        final String side;
        final Map<String, Integer> uses = new HashMap<>();

        Granted(Hold hold, String side) {
            this.hold = hold;
            this.side = side;
            hold.names().forEach(name -> uses.put(name, 0));
        }

        boolean covers(Request request) {
            return side.equals(request.mode.side) && request.names.stream().anyMatch(uses::containsKey);
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

    /** A lock that the thread has entered, what it consists of, and how often it was entered. */
    static final class ThreadHold {
        private final List<Granted> parts;
        volatile int entries = 1;
        /** Whether the server's count may differ from {@link #entries}, because a reply is missing. */
        boolean uncertain;

        private ThreadHold(List<Granted> parts) {
            this.parts = parts;
        }

        /** Returns the holds that it consists of. */
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

        /** Returns the greatest token: no other owner had one of the names after the last grant. */
        long fencingToken() {
            return parts.stream().mapToLong(part -> part.hold.fencingToken()).max().orElseThrow();
        }

        /** Returns the exception that says what was lost. */
        LockLostException lostOr(String otherwise) {
            return parts.stream().map(part -> part.hold).filter(hold -> !hold.isLive()).findFirst()
                    .orElse(parts.get(0).hold).lostOr(otherwise);
        }

        /** Returns whether the server counts the entries. It does not for several locks. */
        boolean isCounted() {
            return parts.size() == 1 && !uncertain && parts.get(0).hold.isOfOneName();
        }
    }

    /** A lock and the side of it that is held. Exclusive and write are the same side. */
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
