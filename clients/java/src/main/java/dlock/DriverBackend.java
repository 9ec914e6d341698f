package dlock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.LongFunction;

/** A client that the program already has. */
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
    public boolean hasSessions() {
        return false;
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
    public CompletableFuture<Line> line(String key) {
        return CompletableFuture.completedFuture(new DriverLine(key));
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

    /** An error of the server is in the message of the exception, or of one that it wraps. */
    static RuntimeException failure(Exception thrown) {
        Throwable each = thrown;
        // Exceptions may be linked in a circle.
        for (int depth = 0; each != null && depth < 20; depth++) {
            String message = String.valueOf(each.getMessage());
            if (!ServerException.codeOf(message).isEmpty()) {
                return ServerException.of(message, thrown);
            }
            each = each.getCause();
        }
        return new Unanswered("the driver failed: " + thrown, thrown);
    }

    /**
     * A place in a queue that is kept by calls which are shorter than the driver's read timeout. The next call repeats
     * the same request before the last one ends, and so takes over its place.
     */
    private final class DriverLine implements Line {
        private final String key;
        private final List<CompletableFuture<Object>> calls = new ArrayList<>();
        private final CompletableFuture<Object> result = new CompletableFuture<>();
        private LongFunction<byte[][]> command;
        private Deadline end;
        private boolean leaving;
        private int last;

        DriverLine(String key) {
            this.key = key;
        }

        @Override
        public CompletableFuture<Object> request(LongFunction<byte[][]> request, Deadline until) {
            command = request;
            end = until;
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
                block = end.isNever() ? longestWaitMillis : Math.min(end.block(), longestWaitMillis);
                number = ++last;
                calls.removeIf(CompletableFuture::isDone);
                call = DriverBackend.this.ask(key, command.apply(block));
                calls.add(call);
            }
            call.whenComplete((reply, failed) -> answered(number, reply, failed));
            if (block == longestWaitMillis) {
                Futures.after(longestWaitMillis / 2).thenRun(() -> {
                    if (!call.isDone()) {
                        next();
                    }
                });
            }
        }

        private void answered(int number, Object reply, Throwable failed) {
            boolean ousted;
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
        public CompletableFuture<Object> ask(byte[][] question) {
            return DriverBackend.this.ask(key, question);
        }

        @Override
        public CompletableFuture<Object> leave() {
            List<CompletableFuture<Object>> left;
            synchronized (this) {
                leaving = true;
                left = new ArrayList<>(calls);
            }
            if (left.stream().anyMatch(call -> !call.isDone())) {
                // Takes over the place, and gives it up at once. Should it overtake what it is to replace, that ends by
                // itself.
                left.add(DriverBackend.this.ask(key, command.apply(1)));
            }
            return Futures.all(left).handle((done, failed) -> left.stream()
                    .filter(call -> !call.isCompletedExceptionally())
                    .map(call -> call.getNow(null))
                    .filter(reply -> reply != null)
                    .findFirst().orElse(null));
        }

        @Override
        public void whenEnded(Runnable task) {
            throw new UnsupportedOperationException("a driver's connections are its own");
        }

        @Override
        public void giveBack() {
            // Connections are the driver's business.
        }
    }
}
