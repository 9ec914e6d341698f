package dlock;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** A thread as the server knows it, and the locks that it holds. Only that thread uses it. */
final class ThreadOwner {
    final String name;
    private final Map<Key, ThreadHold> holds = new HashMap<>();

    ThreadOwner(String name) {
        this.name = name;
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

    /** A hold, and how often the thread entered it. */
    static final class ThreadHold {
        final Hold hold;
        int entries = 1;
        /** Whether the server may count other entries than {@link #entries}, because an answer is missing. */
        boolean uncertain;

        ThreadHold(Hold hold) {
            this.hold = hold;
        }
    }

    /** Exclusive and write are one side of a lock. */
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
