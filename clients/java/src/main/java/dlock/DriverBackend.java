package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.LongFunction;

/** Sends commands through another Redis client of the program. */
final class DriverBackend implements Backend {
    private final Driver driver;
    private final long longestWaitMillis;
    private final ExecutorService callers = Executors.newCachedThreadPool(run -> {
        Thread thread = new Thread(run, "dlock-driver");
        thread.setDaemon(true);
        return thread;
    });

    DriverBackend(Driver driver, long longestWaitMillis) {
        this.driver = driver;
        this.longestWaitMillis = longestWaitMillis;
    }

    @Override
    public boolean hasOwnConnections() {
        return false;
    }

    @Override
    public boolean isCluster() {
        return false;
    }

    @Override
    public CompletableFuture<String> serverOf(String key) {
        return CompletableFuture.completedFuture("");
    }

    @Override
    public void distrust(String key) {
        // The driver finds its servers itself.
    }

    @Override
    public boolean together(String one, String other) {
        return true;
    }

    @Override
    public CompletableFuture<Object> ask(String key, byte[][] command) {
        if (callers.isShutdown()) {
            return CompletableFuture.failedFuture(new Unanswered("the client is closed", null));
        }
        return CompletableFuture.supplyAsync(() -> call(command), callers);
    }

    @Override
    public CompletableFuture<DedicatedConnection> dedicated(String key) {
        return CompletableFuture.completedFuture(new DriverConnection(key));
    }

    @Override
    public void close() {
        callers.shutdown();
    }

    private Object call(byte[][] command) {
        try {
            return driver.call(command);
        } catch (Exception e) {
            throw new CompletionException(failure(e));
        }
    }

    /** Finds an error reply in the message of an exception, or of one of its causes. */
    static RuntimeException failure(Exception thrown) {
        Throwable each = thrown;
        // Causes may form a cycle.
        for (int depth = 0; each != null && depth < 20; depth++) {
            String message = String.valueOf(each.getMessage());
            if (!ServerException.codeOf(message).isEmpty()) {
                return ServerException.of(message, thrown);
            }
            each = each.getCause();
        }
        return new Unanswered("the driver failed: " + thrown, thrown);
    }

    /** Returns whether a call has no answer, so that it may still be executed. */
    private static boolean isUnanswered(CompletableFuture<Object> call) {
        return !call.isDone() || call
                .handle((reply, failed) -> failed != null && Unanswered.mayBeExecuted(Futures.cause(failed)))
                .join();
    }

    /**
     * Waits with calls that are shorter than the driver's read timeout. Each call repeats the request before the
     * previous call ends, and so takes over its place in the queue.
     */
    private final class DriverConnection implements DedicatedConnection {
        private final String key;
        private final List<CompletableFuture<Object>> calls = new ArrayList<>();
        private final CompletableFuture<Object> result = new CompletableFuture<>();
        private LongFunction<byte[][]> command;
        private Deadline end;
        private long longestMillis;
        private boolean leaving;
        private int last;
        private volatile long answered = System.nanoTime();

        DriverConnection(String key) {
            this.key = key;
        }

        @Override
        public CompletableFuture<Object> request(LongFunction<byte[][]> request, Limits limit, boolean waits) {
            command = request;
            end = waits ? limit.end : Deadline.afterMillis(0);
            longestMillis = Math.min(longestWaitMillis, limit.hearMillis());
            next();
            return result;
        }

        private void next() {
            long block;
            int number;
            CompletableFuture<Object> call;
            synchronized (this) {
                if (leaving || result.isDone()) {
                    return;
                }
                block = end.isNever() ? longestMillis : Math.min(end.block(), longestMillis);
                number = ++last;
                calls.removeIf(before -> !isUnanswered(before));
                call = DriverBackend.this.ask(key, command.apply(block));
                calls.add(call);
            }
            call.whenComplete((reply, failed) -> answered(number, reply, failed));
            if (block == longestMillis) {
                Futures.after(longestMillis / 2).thenRun(() -> {
                    if (!call.isDone()) {
                        next();
                    }
                });
            }
        }

        private void answered(int number, Object reply, Throwable failed) {
            boolean ousted;
            if (failed == null) {
                answered = System.nanoTime();
            }
            synchronized (this) {
                ousted = number != last;
            }
            if (reply != null) {
                result.complete(reply);
            } else if (ousted) {
                return;
            } else if (failed != null) {
                result.completeExceptionally(Futures.cause(failed));
            } else if (end.hasPassed()) {
                result.complete(null);
            } else {
                next();
            }
        }

        @Override
        public synchronized boolean isCopied() {
            return calls.stream().anyMatch(DriverBackend::isUnanswered);
        }

        @Override
        public CompletableFuture<Object> askPatiently(byte[][] question) {
            return DriverBackend.this.ask(key, question);
        }

        @Override
        public CompletableFuture<Object> ask(byte[][] question, long millis) {
            return DriverBackend.this.ask(key, question);
        }

        @Override
        public CompletableFuture<Object> leave(List<byte[][]> undo) {
            List<CompletableFuture<Object>> left;
            synchronized (this) {
                leaving = true;
                if (calls.stream().anyMatch(call -> !call.isDone())) {
                    // Takes over the place in the queue and leaves it after 1 ms. If it arrives before the call that it
                    // replaces, that call ends by itself.
                    calls.add(DriverBackend.this.ask(key, command.apply(1)));
                }
                left = new ArrayList<>(calls);
            }
            return Futures.all(left).handle((done, failed) -> left.stream()
                    .filter(call -> !call.isCompletedExceptionally())
                    .map(call -> call.getNow(null))
                    .filter(reply -> reply != null)
                    .findFirst().orElse(null));
        }

        @Override
        public long answered() {
            return answered;
        }

        @Override
        public void whenEnded(Runnable task) {
            throw new UnsupportedOperationException("a driver's connections are its own");
        }

        @Override
        public void whenInvalidated(Runnable task) {
            throw new UnsupportedOperationException("a driver's connections are its own");
        }

        @Override
        public void giveBack() {
            // The driver pools its connections.
        }
    }
}
