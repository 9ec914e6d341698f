package dlock;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;

/** The owner name of a thread, and the locks that it holds. Only this thread uses it. */
final class ThreadOwner {
    private final Supplier<String> names;
    private final Map<Key, ThreadHold> holds = new HashMap<>();
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
     */
    String nameFor(Request request) {
        for (Map.Entry<Key, ThreadHold> each : holds.entrySet()) {
            if (each.getKey().names.equals(request.names)) {
                return each.getValue().hold.owner();
            }
        }
        if (holds.isEmpty() || unsettled) {
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

    void holds(Request request, ThreadHold hold) {
        holds.put(new Key(request), hold);
    }

    void holdsNoLonger(Request request) {
        holds.remove(new Key(request));
    }

    /** A hold, and the number of times that the thread entered it. */
    static final class ThreadHold {
        final Hold hold;
        int entries = 1;
        /** Whether the server's count may differ from {@link #entries}, because a reply is missing. */
        boolean uncertain;

        ThreadHold(Hold hold) {
            this.hold = hold;
        }
    }

    /** A lock and the side of it that is held. Exclusive and write are the same side. */
    private static final class Key {
        private final List<String> names;
        private final String side;

        Key(Request request) {
            names = request.names;
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
