package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Runs tasks at their times, on a thread of its own. A task must not block.
 *
 * <p>Most tasks are canceled before their time. So a new task wakes the thread only if it is due before the thread
 * wakes by itself, and a canceled task does not. An executor of the JDK is woken by each task that becomes its first.
 */
final class Timer {
    /** A task, until it runs or is canceled. */
    final class Task implements Comparable<Task> {
        private final Runnable what;
        private final long at;
        private final long number;
        /** Whether a shutdown runs the task at once. Other tasks are dropped. */
        private final boolean isLimit;

        private Task(Runnable what, long at, long number, boolean isLimit) {
            this.what = what;
            this.at = at;
            this.number = number;
            this.isLimit = isLimit;
        }

        /** Prevents the task from running, unless it runs already. */
        void cancel() {
            lock.lock();
            try {
                tasks.remove(this);
            } finally {
                lock.unlock();
            }
        }

        @Override
        public int compareTo(Task other) {
            return at == other.at ? Long.compare(number, other.number) : Long.signum(at - other.at);
        }
    }

    /** The longest delay, in ns. With a quarter of the range, no difference of two times overflows. */
    private static final long LONGEST = Long.MAX_VALUE / 4;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    // Guarded by the lock.
    private final TreeSet<Task> tasks = new TreeSet<>();
    private long number;
    private boolean isSleeping;
    /** When the thread wakes by itself, while it sleeps. */
    private long wakes;
    /** Read without the lock, too. */
    private volatile boolean isOver;

    /** Starts the thread. If the system refuses, this fails before a command is sent whose wait a task must end. */
    Timer(String name) {
        Thread thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Runs the task after this time, unless it is canceled or the timer is shut down by then. */
    Task schedule(Runnable what, long nanos) {
        return schedule(what, nanos, false);
    }

    /**
     * Runs a task that ends a wait of the user: after this time, or when the timer is shut down. If the shutdown comes
     * during this call, the task may run twice.
     */
    Task limit(Runnable what, long nanos) {
        Task task = schedule(what, nanos, true);
        if (isOver) {
            Core.guarded(what);
        }
        return task;
    }

    private Task schedule(Runnable what, long nanos, boolean isLimit) {
        lock.lock();
        try {
            long at = System.nanoTime() + Math.min(Math.max(0, nanos), LONGEST);
            Task task = new Task(what, at, number++, isLimit);
            if (isOver) {
                return task;
            }
            tasks.add(task);
            if (isSleeping && at - wakes < 0) {
                changed.signal();
            }
            return task;
        } finally {
            lock.unlock();
        }
    }

    /** Runs the tasks that end waits of the user at once, and drops all others. */
    void shutdown() {
        List<Task> limits = new ArrayList<>();
        lock.lock();
        try {
            isOver = true;
            tasks.stream().filter(task -> task.isLimit).forEach(limits::add);
            tasks.clear();
            changed.signal();
        } finally {
            lock.unlock();
        }
        limits.forEach(task -> Core.guarded(task.what));
    }

    private void run() {
        for (Task due; (due = next()) != null; ) {
            Core.guarded(due.what);
        }
    }

    /** Waits for the next task that is due. Returns {@code null} if the timer is shut down. */
    private Task next() {
        lock.lock();
        try {
            while (!isOver) {
                long now = System.nanoTime();
                long left = tasks.isEmpty() ? LONGEST : tasks.first().at - now;
                if (left <= 0) {
                    return tasks.pollFirst();
                }
                wakes = now + left;
                isSleeping = true;
                sleep(left);
                isSleeping = false;
            }
            return null;
        } finally {
            lock.unlock();
        }
    }

    private void sleep(long nanos) {
        try {
            changed.awaitNanos(nanos);
        } catch (InterruptedException e) {
            // An interrupt does not end the thread: only a shutdown does.
        }
    }
}
