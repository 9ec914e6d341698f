package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** The state that all locks of a client share: backend, timer, owner names, and the policy for repeats. */
final class Core implements AutoCloseable {
    /** The time for which the client cleans up after a request that was given up. Afterwards its hold lapses. */
    static final long CLEANING_MILLIS = 5000;

    private static final long FIRST_PAUSE_MILLIS = 25;
    private static final long LONGEST_PAUSE_MILLIS = 500;
    /** The time for which {@link #close} waits for what it releases. */
    private static final long CLOSING_MILLIS = 2000;

    final Backend backend;
    final long patienceMillis;
    /** The time that a server has to answer a request that does not wait. */
    final long tryMillis;
    /** The pause between two tries on a key that is not a lock. 0: such a key is an error. */
    final long besideMillis;
    /** Runs listeners and completes the users' futures. */
    final Executor executor;
    private final List<LockListener> listeners;
    /** Runs tasks that never block. */
    private final Timer timer = new Timer("dlock-timer");

    private final Owners names;
    private final AtomicLong owners = new AtomicLong();
    private final AtomicLong ids = new AtomicLong();
    private final ThreadLocal<ThreadOwner> threads = ThreadLocal.withInitial(() -> new ThreadOwner(this::freshOwner));
    /** The permits that the client's threads hold. */
    final Permits permits = new Permits();
    private final Set<Election> elections = ConcurrentHashMap.newKeySet();
    private final Set<Granting> grantings = ConcurrentHashMap.newKeySet();
    private final Set<Hold> holds = ConcurrentHashMap.newKeySet();
    private final Set<Session> sessions = ConcurrentHashMap.newKeySet();
    final Releases releases = new Releases(this);
    /** Whether new requests are refused. */
    private volatile boolean closing;
    /** Whether no commands are sent any more. */
    private volatile boolean closed;

    Core(Backend backend, Owners names, long patienceMillis, long tryMillis, long besideMillis, Executor executor,
            List<LockListener> listeners) {
        this.backend = backend;
        this.names = names;
        this.patienceMillis = patienceMillis;
        this.tryMillis = tryMillis;
        this.besideMillis = besideMillis;
        this.executor = executor;
        this.listeners = List.copyOf(listeners);
    }

    /** Returns a new owner name, unique among all clients. */
    String freshOwner() {
        return names.name(owners.incrementAndGet());
    }

    /** Returns a new request id, unique in this client. */
    String freshId() {
        return Long.toString(ids.incrementAndGet(), 36);
    }

    /** Returns the owner of the current thread, with its holds. */
    ThreadOwner currentOwner() {
        return threads.get();
    }

    void checkOpen() {
        if (closing) {
            throw new IllegalStateException("the client is closed");
        }
    }

    boolean isClosing() {
        return closing;
    }

    boolean isClosed() {
        return closed;
    }

    // Elections, sessions, requests and holds, which close() ends

    void keep(Election election) {
        elections.add(election);
    }

    void forget(Election election) {
        elections.remove(election);
    }

    void keep(Session session) {
        sessions.add(session);
    }

    void forget(Session session) {
        sessions.remove(session);
    }

    void keep(Granting granting) {
        grantings.add(granting);
    }

    void forget(Granting granting) {
        grantings.remove(granting);
    }

    void keep(Hold hold) {
        holds.add(hold);
    }

    void forget(Hold hold) {
        holds.remove(hold);
    }

    /** Returns whether this owner has a hold of this side of the name, or asks for one. */
    boolean isInUse(String owner, String name, String side) {
        return holds.stream().anyMatch(hold -> hold.isOf(owner, name, side))
                || grantings.stream().anyMatch(granting -> granting.isFor(owner, name, side));
    }

    /** Gives up the requests, releases the holds, and ends the connections. */
    @Override
    public void close() {
        synchronized (this) {
            if (closing) {
                return;
            }
            closing = true;
        }
        Deadline enough = Deadline.afterMillis(CLOSING_MILLIS);
        // A term ends before its lock is released.
        Futures.awaitAll(each(elections, Election::end), enough);
        List<CompletableFuture<?>> left = each(grantings, Granting::close);
        left.addAll(each(holds, Hold::releaseAsync));
        Futures.awaitAll(left, enough);
        Futures.awaitAll(each(sessions, Session::end), enough);
        Futures.awaitAll(releases.left(), enough);
        closed = true;
        timer.shutdown();
        backend.close();
    }

    private static <T> List<CompletableFuture<?>> each(Set<T> all, Function<T, CompletableFuture<?>> end) {
        return all.stream().map(end).collect(Collectors.toCollection(ArrayList::new));
    }

    /** A reply, and whether a server may have run an earlier copy of the command: some errors prove that none has. */
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
     * Sends an idempotent command, again if it is not answered.
     *
     * @return fails with {@link ServerException}, or with {@link UnavailableException} at {@code giveUp}, even if the
     *     server hangs
     */
    CompletableFuture<Answer<Object>> repeat(String key, byte[][] command, Deadline giveUp) {
        return repeat(() -> backend.ask(key, command), giveUp);
    }

    /** The same, for commands that are sent in another way. */
    <T> CompletableFuture<Answer<T>> repeat(Supplier<CompletableFuture<T>> send, Deadline giveUp) {
        CompletableFuture<Answer<T>> result = new CompletableFuture<>();
        AtomicReference<Throwable> trouble = new AtomicReference<>();
        Timer.Task late = schedule(() -> result.completeExceptionally(unavailable(trouble.get())), giveUp.leftNanos());
        result.whenComplete((answer, failed) -> late.cancel());
        repeat(send, giveUp, 0, false, result, trouble);
        return result;
    }

    /** {@code isOpen}: a copy that was sent before may have been executed. */
    private <T> void repeat(
            Supplier<CompletableFuture<T>> send,
            Deadline giveUp,
            int before,
            boolean isOpen,
            CompletableFuture<Answer<T>> result,
            AtomicReference<Throwable> trouble) {
        if (result.isDone()) {
            return;
        }
        send.get().whenComplete((reply, failed) -> {
            Throwable reason = Futures.cause(failed);
            if (failed == null) {
                result.complete(new Answer<>(reply, isOpen));
            } else if (!Unanswered.mayRepeat(reason)) {
                result.completeExceptionally(reason);
            } else if (closed) {
                result.completeExceptionally(unavailable(reason));
            } else {
                trouble.set(reason);
                boolean mayBeExecuted = isOpen || Unanswered.mayBeExecuted(reason);
                Futures.after(pauseMillis(before, giveUp))
                        .thenRun(() -> repeat(send, giveUp, before + 1, mayBeExecuted, result, trouble));
            }
        });
    }

    /** Returns the pause before a repeat. The first repeat is sent at once. */
    static long pauseMillis(int before) {
        return before == 0 ? 0 : Math.min(FIRST_PAUSE_MILLIS << Math.min(before - 1, 10), LONGEST_PAUSE_MILLIS);
    }

    /** The same, but tries more often before the end, so that a server that comes back late is found. */
    static long pauseMillis(int before, Deadline giveUp) {
        return Math.min(pauseMillis(before), Math.max(FIRST_PAUSE_MILLIS, giveUp.leftMillis() / 4));
    }

    /** {@code failure}: the last one, or {@code null}. */
    RuntimeException unavailable(Throwable failure) {
        Throwable reason = failure == null ? new Unanswered("no server answered in time", null) : failure;
        return reason instanceof ServerException && !Unanswered.mayRepeat(reason)
                ? (ServerException) reason
                : new UnavailableException(closed ? "the client is closed" : reason.getMessage(), reason);
    }

    /** Schedules a task that never blocks. It does not run after the client is closed. */
    Timer.Task schedule(Runnable task, long nanos) {
        return timer.schedule(task, nanos);
    }

    /** Schedules the end of a wait of the user. The wait ends earlier if the client is closed. */
    Timer.Task limit(Runnable end, long nanos) {
        return timer.limit(() -> Futures.after(0).thenRun(end), nanos);
    }

    /** Tells the listeners of the client at once, on this thread. */
    void report(Consumer<LockListener> event) {
        for (LockListener listener : listeners) {
            guarded(() -> event.accept(listener));
        }
    }

    /**
     * Runs a task. The thread survives whatever the task or the thread's exception handler throws; a listener in Kotlin
     * may throw checked exceptions that no Java interface declares.
     */
    static void guarded(Runnable told) {
        try {
            told.run();
        } catch (Throwable e) {
            Thread thread = Thread.currentThread();
            Thread.UncaughtExceptionHandler handler = thread.getUncaughtExceptionHandler();
            try {
                handler.uncaughtException(thread, e);
            } catch (Throwable ignored) {
                // Nobody is left to tell.
            }
        }
    }

    /** Calls code of the user, on a thread that may block. */
    void tell(Runnable told) {
        Runnable guarded = () -> guarded(told);
        try {
            executor.execute(guarded);
        } catch (RejectedExecutionException e) {
            // The client is closed, and the task reports that, or there is no thread at present.
            tellAlone(guarded);
        }
    }

    private void tellAlone(Runnable guarded) {
        try {
            new Thread(guarded, "dlock-closed").start();
        } catch (Error e) {
            schedule(() -> tellAlone(guarded), TimeUnit.MILLISECONDS.toNanos(LONGEST_PAUSE_MILLIS));
        }
    }

    /**
     * Returns an executor that passes tasks to another one, and rejects a task if the other one throws anything: at
     * times, a machine has no room for a thread ({@link OutOfMemoryError}).
     */
    static Executor rejecting(Executor other) {
        return task -> {
            try {
                other.execute(task);
            } catch (RejectedExecutionException e) {
                throw e;
            } catch (RuntimeException | Error e) {
                throw new RejectedExecutionException(e);
            }
        };
    }
}
