import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.IntSupplier;
import java.util.stream.Collectors;

/** The threads that wait for a lock. dlock knows how many there are in the server's queue; the tests ask which. */
final class Waiting {
    private final ConcurrentLinkedQueue<Wait> waits = new ConcurrentLinkedQueue<>();
    private final IntSupplier arrived;

    /** A step that may be interrupted. */
    interface Step {
        boolean run() throws InterruptedException;
    }

    /** A wait of a thread. */
    private static final class Wait {
        final Thread thread = Thread.currentThread();
        volatile boolean hasArrived;
    }

    Waiting(IntSupplier arrived) {
        this.arrived = arrived;
    }

    /** Runs a step that may wait. */
    boolean interruptibly(Step step) throws InterruptedException {
        Wait wait = new Wait();
        waits.add(wait);
        try {
            return step.run();
        } finally {
            waits.remove(wait);
        }
    }

    void uninterruptibly(Runnable step) {
        Wait wait = new Wait();
        waits.add(wait);
        try {
            step.run();
        } finally {
            waits.remove(wait);
        }
    }

    /** Returns the threads that wait and whose requests have arrived at the server. */
    Collection<Thread> all() {
        List<Wait> now = new ArrayList<>(waits);
        if (arrived.getAsInt() >= now.size()) {
            now.forEach(wait -> wait.hasArrived = true);
        }
        now.retainAll(waits);
        return now.stream().filter(wait -> wait.hasArrived).map(wait -> wait.thread).collect(Collectors.toList());
    }

    boolean has(Thread thread) {
        if (thread == null) {
            throw new NullPointerException();
        }
        return all().contains(thread);
    }

    int size() {
        return waits.size();
    }
}
