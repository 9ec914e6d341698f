package dlock;

import java.security.SecureRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** What all locks of a client share: the way to the servers, the clock, names, and how commands are repeated. */
final class Core implements AutoCloseable {
    private static final long FIRST_PAUSE_MILLIS = 25;
    private static final long LONGEST_PAUSE_MILLIS = 1000;

    final Backend backend;
    final long patienceMillis;
    /** How long to wait before asking again for a key that is not a lock; 0: that is an error. */
    final long besideMillis;
    /** Runs what users are told. */
    final Executor executor;
    /** Runs at its time what never blocks. */
    final ScheduledThreadPoolExecutor timer;

    private final String name;
    private final AtomicLong ids = new AtomicLong();
    private final ThreadLocal<ThreadOwner> owners = ThreadLocal.withInitial(() -> new ThreadOwner(freshOwner()));
    /** What the client's threads have of semaphores. */
    final Permits permits = new Permits();
    private volatile boolean closed;

    Core(Backend backend, long patienceMillis, long besideMillis, Executor executor) {
        this.backend = backend;
        this.patienceMillis = patienceMillis;
        this.besideMillis = besideMillis;
        this.executor = executor;
        byte[] random = new byte[12];
        new SecureRandom().nextBytes(random);
        StringBuilder hex = new StringBuilder();
        for (byte each : random) {
            hex.append(String.format("%02x", each));
        }
        name = hex.toString();
        timer = new ScheduledThreadPoolExecutor(1, run -> {
            Thread thread = new Thread(run, "dlock-timer");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
        timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    }

    /** An owner that nobody else is. */
    String freshOwner() {
        return name + ":" + Long.toString(ids.incrementAndGet(), 36);
    }

    /** An id that no other command of this client has. */
    String freshId() {
        return Long.toString(ids.incrementAndGet(), 36);
    }

    /** The owner that the current thread is, with what it holds. */
    ThreadOwner currentOwner() {
        return owners.get();
    }

    void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the client is closed");
        }
    }

    boolean isClosed() {
        return closed;
    }

    @Override
    public void close() {
        closed = true;
        timer.shutdownNow();
        backend.close();
    }

    /** An answer, and whether an earlier copy of the command may have been executed. */
    static final class Answer {
        final Object reply;
        final boolean repeated;

        Answer(Object reply, boolean repeated) {
            this.reply = reply;
            this.repeated = repeated;
        }
    }

    /** When to give up a command that nobody answers. */
    Deadline patience() {
        return Deadline.afterMillis(patienceMillis);
    }

    /**
     * Sends a command that does no harm if it is executed twice, again until it is answered.
     *
     * @return fails with {@link ServerException}, or with {@link UnavailableException} when it is given up
     */
    CompletableFuture<Answer> repeat(String key, byte[][] command, Deadline giveUp) {
        return repeat(key, command, giveUp, 0);
    }

    private CompletableFuture<Answer> repeat(String key, byte[][] command, Deadline giveUp, int before) {
        return backend.ask(key, command).handle((reply, failed) -> {
            if (failed == null) {
                return CompletableFuture.completedFuture(new Answer(reply, before > 0));
            }
            Throwable reason = Futures.cause(failed);
            if (!Unanswered.mayRepeat(reason)) {
                return CompletableFuture.<Answer>failedFuture(reason);
            }
            long pause = pauseMillis(before);
            if (closed || giveUp.leftMillis() <= pause) {
                return CompletableFuture.<Answer>failedFuture(unavailable(reason));
            }
            return Futures.after(pause).thenCompose(done -> repeat(key, command, giveUp, before + 1));
        }).thenCompose(answer -> answer);
    }

    /** The first repeat is sent at once. */
    static long pauseMillis(int before) {
        return before == 0 ? 0 : Math.min(FIRST_PAUSE_MILLIS << Math.min(before - 1, 10), LONGEST_PAUSE_MILLIS);
    }

    RuntimeException unavailable(Throwable reason) {
        return reason instanceof ServerException
                ? (ServerException) reason
                : new UnavailableException(closed ? "the client is closed" : reason.getMessage(), reason);
    }

    /** Runs something that never blocks at its time, unless the client is closed before. */
    Future<?> schedule(Runnable task, long nanos) {
        try {
            return timer.schedule(task, Math.max(0, nanos), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.completedFuture(null);
        }
    }

    /** Tells a user something, on a thread that may block. */
    void tell(Runnable told) {
        Runnable guarded = () -> {
            try {
                told.run();
            } catch (RuntimeException | Error e) {
                Thread thread = Thread.currentThread();
                Thread.UncaughtExceptionHandler handler = thread.getUncaughtExceptionHandler();
                handler.uncaughtException(thread, e);
            }
        };
        try {
            executor.execute(guarded);
        } catch (RejectedExecutionException e) {
            // The client is closed, which is what is told.
            new Thread(guarded, "dlock-closed").start();
        }
    }
}
