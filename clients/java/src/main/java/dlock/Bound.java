package dlock;

import java.util.function.BiConsumer;

/** A hold that is bound to a session. */
final class Bound {
    final HoldCommands commands;
    final BiConsumer<String, Throwable> lose;
    /** Guarded by the session. */
    Binding binding = new Binding();

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
}
