import java.util.ArrayList;
import java.util.Collection;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.IntSupplier;

/** The threads that wait for a lock. dlock knows how many there are in the server's queue; the tests ask which. */
final class Waiting {
    private final ConcurrentLinkedQueue<Thread> threads = new ConcurrentLinkedQueue<>();
    private final Set<Thread> seen = ConcurrentHashMap.newKeySet();
    private final IntSupplier arrived;

    /** A step that may be interrupted. */
    interface Step {
        boolean run() throws InterruptedException;
    }

    Waiting(IntSupplier arrived) {
        this.arrived = arrived;
    }

    /** Runs a step that may wait. */
    boolean interruptibly(Step step) throws InterruptedException {
        threads.add(Thread.currentThread());
        try {
            return step.run();
        } finally {
            threads.remove(Thread.currentThread());
        }
    }

    void uninterruptibly(Runnable step) {
        threads.add(Thread.currentThread());
        try {
            step.run();
        } finally {
            threads.remove(Thread.currentThread());
        }
    }

    /**
     * Returns the threads that wait and whose requests have arrived at the server. A thread whose request has arrived
     * once counts as arrived whenever it waits again.
     */
    Collection<Thread> all() {
        Collection<Thread> now = new ArrayList<>(threads);
        if (arrived.getAsInt() >= now.size()) {
            seen.addAll(now);
        }
        now.retainAll(seen);
        now.retainAll(threads);
        return now;
    }

    boolean has(Thread thread) {
        if (thread == null) {
            throw new NullPointerException();
        }
        return all().contains(thread);
    }

    int size() {
        return threads.size();
    }
}
