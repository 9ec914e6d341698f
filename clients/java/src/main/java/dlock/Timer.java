package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Runs tasks that never block at their times, on a thread of its own.
 *
 * <p>Most tasks are canceled before their time. A task wakes the thread only if it is due before the thread goes on by
 * itself, and one that is canceled does not wake it: the executors of the JDK are woken whenever their first task changes.
 */
final class Timer {
    /** A task, until it runs or is canceled. */
    final class Task implements Comparable<Task> {
        private final Runnable what;
        private final long at;
        private final long number;
        /** Whether it runs at a shutdown, too. */
        private final boolean isLimit;

        private Task(Runnable what, long at, long number, boolean isLimit) {
            this.what = what;
            this.at = at;
            this.number = number;
            this.isLimit = isLimit;
        }

        /** The task does not run, unless it runs already. */
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

    /** The longest sleep. */
    private static final long LONGEST = Long.MAX_VALUE / 4;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    // Guarded by the lock.
    private final TreeSet<Task> tasks = new TreeSet<>();
    private long number;
    private boolean isSleeping;
    /** When the thread goes on by itself, while it sleeps. */
    private long wakes;
    private volatile boolean isOver;

    /** Starts the thread. If the system has no room for it, this fails before a command is sent that a task limits. */
    Timer(String name) {
        Thread thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Runs the task after this time, unless the timer is shut down by then. */
    Task schedule(Runnable what, long nanos) {
        return schedule(what, nanos, false);
    }

    /** Runs a task for which the user waits: after this time, or when the timer is shut down. */
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

    /** Runs the tasks for which the user waits, and drops all others. */
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
            // Nobody may end the thread but a shutdown.
        }
    }
}
