package dlock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** The sessions on the nodes of a cluster that have locks of a {@link Session}. */
final class NodeSessions {
    private final Session whole;
    private final Core core;

    // Guarded by this. No method of a session is called while this is locked.
    private final Set<Session> all = new HashSet<>();
    /** The sessions for new locks, by the address of the node. */
    private final Map<String, CompletableFuture<Session>> byNode = new HashMap<>();
    private final Set<Bound> moving = new HashSet<>();

    NodeSessions(Session whole, Core core) {
        this.whole = whole;
        this.core = core;
    }

    synchronized List<Session> all() {
        return new ArrayList<>(all);
    }

    /** Returns the session on the node that has a key. Opens it if there is none. */
    CompletableFuture<Session> at(String key) {
        return core.backend.serverOf(key).thenCompose(node -> {
            CompletableFuture<Session> opening = new CompletableFuture<>();
            synchronized (this) {
                CompletableFuture<Session> known = byNode.get(node);
                if (known != null) {
                    return known;
                }
                byNode.put(node, opening);
            }
            whole.onNode(key).whenComplete((session, refused) -> {
                Throwable failed = refused;
                if (failed == null && whole.isOver()) {
                    session.end();
                    failed = new UnavailableException("the session is over", null);
                }
                synchronized (this) {
                    if (failed == null) {
                        all.add(session);
                    } else {
                        byNode.remove(node, opening);
                    }
                }
                if (failed == null) {
                    opening.complete(session);
                } else {
                    core.backend.distrust(key);
                    opening.completeExceptionally(Futures.cause(failed));
                }
            });
            return opening;
        });
    }

    /** The session is not used for new locks any more. It keeps those that it has. */
    synchronized void forget(Session session) {
        byNode.values().removeIf(known -> known.isDone() && !known.isCompletedExceptionally() && known.join() == session);
    }

    synchronized void drop(Session session) {
        forget(session);
        all.remove(session);
    }

    /** Binds a hold on the node that has its key now. If that fails, its session tries to bind it again. */
    void move(Session from, Bound bound) {
        synchronized (this) {
            if (bound.keeper() != from || !moving.add(bound)) {
                return;
            }
            forget(from);
        }
        at(bound.name()).whenComplete((to, failed) -> {
            if (failed == null && to != from) {
                // At any time, one of the two sessions keeps it.
                to.adopt(bound, from.until(bound));
                if (!from.leave(bound)) {
                    // The lock was released or lost meanwhile.
                    to.leave(bound);
                }
            }
            synchronized (this) {
                moving.remove(bound);
            }
        });
    }

    /** A session on a node is lost, with its locks. If it was the last one, the whole session is lost. */
    void lost(Session session, Throwable why) {
        boolean isLast;
        synchronized (this) {
            drop(session);
            isLast = all.isEmpty();
        }
        if (isLast) {
            whole.lostOnAllNodes(why);
        }
    }
}
