package dlock;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/** The one thread that reads from all connections of a client. */
final class Loop implements AutoCloseable {
    private final Selector selector;
    private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
    private volatile boolean closed;
    /** For replies that do not come. */
    private final Timer timer = new Timer("dlock-replies");

    Loop() {
        try {
            selector = Selector.open();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Thread thread = new Thread(this::run, "dlock-io");
        thread.setDaemon(true);
        try {
            thread.start();
        } catch (Error e) {
            timer.shutdown();
            throw e;
        }
    }

    /** Runs a task on the loop's thread. */
    void execute(Runnable task) {
        tasks.add(task);
        selector.wakeup();
    }

    Timer timer() {
        return timer;
    }

    Selector selector() {
        return selector;
    }

    @Override
    public void close() {
        closed = true;
        selector.wakeup();
    }

    private void run() {
        try {
            while (!closed) {
                selector.select();
                for (Runnable task; (task = tasks.poll()) != null; ) {
                    Core.guarded(task);
                }
                for (SelectionKey key : selector.selectedKeys()) {
                    ready(key);
                }
                selector.selectedKeys().clear();
            }
        } catch (IOException | ClosedSelectorException e) {
            closed = true;
        } finally {
            end();
        }
    }

    private static void ready(SelectionKey key) {
        Connection connection = (Connection) key.attachment();
        try {
            connection.ready(key);
        } catch (IOException | RuntimeException | Error e) {
            // A failure ends only the connection on which it happened.
            Core.guarded(() -> connection.fail(e instanceof CancelledKeyException ? new IOException("closed") : e));
        }
    }

    private void end() {
        timer.shutdown();
        for (SelectionKey key : new ArrayList<>(selector.keys())) {
            ((Connection) key.attachment()).fail(new IOException("the client is closed"));
        }
        for (Runnable task; (task = tasks.poll()) != null; ) {
            task.run();
        }
        try {
            selector.close();
        } catch (IOException ignored) {
            // The selector is not used anymore.
        }
    }
}
