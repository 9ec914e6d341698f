package dlock;

import java.util.function.BiConsumer;

/** A hold that is bound to a session. */
final class Bound {
    final HoldCommands commands;
    final BiConsumer<String, Throwable> lose;
    /** Whether it must be bound again, and until when it is certain meanwhile. Guarded by the session. */
    boolean isUnbound;
    long certain;
    /** Until when no cap ends it, if that is known or has to be asked for in time. Guarded by the session. */
    boolean hasCap;
    long cap;
    boolean isCapKnown;

    /** The session that keeps it. In a cluster, another one if its slot moves. */
    volatile Session keeper;

    Bound(Session keeper, HoldCommands commands, BiConsumer<String, Throwable> lose) {
        this.keeper = keeper;
        this.commands = commands;
        this.lose = lose;
    }

    Session keeper() {
        return keeper;
    }

    String name() {
        return commands.request.first();
    }

    /** No cap ends the hold before this time. Called before the session has it. */
    void capAt(long time) {
        hasCap = true;
        cap = time;
    }

    boolean hasEnded(long now) {
        return isUnbound && certain - now <= 0;
    }

    boolean isCapped(long now) {
        return hasCap && cap - now <= 0;
    }
}
