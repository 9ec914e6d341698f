package dlock;

import java.security.SecureRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/** The state that all locks of a client share: backend, timer, owner names, and the policy for repeats. */
final class Core implements AutoCloseable {
    private static final long FIRST_PAUSE_MILLIS = 25;
    private static final long LONGEST_PAUSE_MILLIS = 1000;

    final Backend backend;
    final long patienceMillis;
    private final long timeoutMillis;
    /** The pause between two tries on a key that is not a lock. 0: such a key is an error. */
    final long besideMillis;
    /** Runs listeners and completes the users' futures. */
    final Executor executor;
    /** Runs tasks that never block. */
    final ScheduledThreadPoolExecutor timer;

    private final String name;
    private final AtomicLong ids = new AtomicLong();
    private final ThreadLocal<ThreadOwner> owners = ThreadLocal.withInitial(() -> new ThreadOwner(this::freshOwner));
    /** The permits that the client's threads hold. */
    final Permits permits = new Permits();
    private volatile boolean closed;

    Core(Backend backend, long patienceMillis, long timeoutMillis, long besideMillis, Executor executor) {
        this.backend = backend;
        this.patienceMillis = patienceMillis;
        this.timeoutMillis = timeoutMillis;
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

    /** Returns a new owner name, unique among all clients. */
    String freshOwner() {
        return name + ":" + Long.toString(ids.incrementAndGet(), 36);
    }

    /** Returns a new request id, unique in this client. */
    String freshId() {
        return Long.toString(ids.incrementAndGet(), 36);
    }

    /** Returns the owner of the current thread, with its holds. */
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

    /** A reply, and whether the server may have executed an earlier copy of the command. */
    static final class Answer<T> {
        final T reply;
        final boolean repeated;

        Answer(T reply, boolean repeated) {
            this.reply = reply;
            this.repeated = repeated;
        }
    }

    /** Returns the time at which an unanswered command fails. */
    Deadline patience() {
        return Deadline.afterMillis(patienceMillis);
    }

    /**
     * Returns the end of an outage that begins now, for a request that waits until {@code end}. The outage counts as
     * waiting. A request that does not wait gets the time of one reply.
     */
    Deadline outage(Deadline end) {
        return Deadline.afterMillis(
                end.isNever() ? patienceMillis : Math.min(patienceMillis, Math.max(end.leftMillis(), timeoutMillis)));
    }

    /**
     * Sends an idempotent command, again if it is not answered.
     *
     * @return fails with {@link ServerException}, or with {@link UnavailableException} at that time
     */
    CompletableFuture<Answer<Object>> repeat(String key, byte[][] command, Deadline giveUp) {
        return repeat(() -> backend.ask(key, command), giveUp);
    }

    /** The same, for commands that are sent in another way. */
    <T> CompletableFuture<Answer<T>> repeat(Supplier<CompletableFuture<T>> send, Deadline giveUp) {
        return repeat(send, giveUp, 0);
    }

    private <T> CompletableFuture<Answer<T>> repeat(Supplier<CompletableFuture<T>> send, Deadline giveUp, int before) {
        return send.get().handle((reply, failed) -> {
            if (failed == null) {
                return CompletableFuture.completedFuture(new Answer<>(reply, before > 0));
            }
            Throwable reason = Futures.cause(failed);
            if (!Unanswered.mayRepeat(reason)) {
                return CompletableFuture.<Answer<T>>failedFuture(reason);
            }
            long pause = pauseMillis(before);
            if (closed || giveUp.leftMillis() <= pause) {
                return CompletableFuture.<Answer<T>>failedFuture(unavailable(reason));
            }
            return Futures.after(pause).thenCompose(done -> repeat(send, giveUp, before + 1));
        }).thenCompose(answer -> answer);
    }

    /** Returns the pause before a repeat. The first repeat is sent at once. */
    static long pauseMillis(int before) {
        return before == 0 ? 0 : Math.min(FIRST_PAUSE_MILLIS << Math.min(before - 1, 10), LONGEST_PAUSE_MILLIS);
    }

    RuntimeException unavailable(Throwable reason) {
        return reason instanceof ServerException
                ? (ServerException) reason
                : new UnavailableException(closed ? "the client is closed" : reason.getMessage(), reason);
    }

    /** Schedules a task that never blocks. It does not run after the client is closed. */
    Future<?> schedule(Runnable task, long nanos) {
        try {
            return timer.schedule(task, Math.max(0, nanos), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.completedFuture(null);
        }
    }

    /** Calls code of the user, on a thread that may block. */
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
            // The client is closed, and the task reports that.
            new Thread(guarded, "dlock-closed").start();
        }
    }
}
