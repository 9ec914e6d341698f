package dlock;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The owner name of a thread, and the locks that it holds. Only this thread uses it. */
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
