package dlock;

import java.util.function.BiConsumer;

/** A hold that is bound to a session, as the session sees it. */
final class Bound {
    final HoldCommands commands;
    /** Marks the hold as lost, for a reason and with a cause, which may be {@code null}. */
    final BiConsumer<String, Throwable> lose;
    /** Guarded by the monitor of the session. */
    Binding binding = new Binding();

    /** The session that keeps the hold. In a cluster, another one keeps the hold after its slot has moved. */
    volatile Session keeper;

    Bound(Session keeper, HoldCommands commands, BiConsumer<String, Throwable> lose) {
        this.keeper = keeper;
        this.commands = commands;
        this.lose = lose;
    }

    Session keeper() {
        return keeper;
    }

    /** Returns the name of the lock, or the first one of several. */
    String name() {
        return commands.request.first();
    }
}
