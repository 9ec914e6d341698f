package dlock;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/** A way to the server on which replies get lost or are late. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener;
    private volatile int server;
    private final List<Socket> sockets = new CopyOnWriteArrayList<>();
    private volatile String cutAfter;
    private volatile boolean silent;
    private volatile String keepFrom;
    /** How long replies take, and how long the server does not hear of the end of a connection, in ms. */
    volatile long repliesTake;
    volatile long endsTake;
    /** The next answer on a connection after a command that contains one of these takes {@link #slowTakes} ms. */
    volatile String[] slow = {};
    volatile long slowTakes;
    /** Opened by {@link #deliver}. */
    private final CountDownLatch delivery = new CountDownLatch(1);
    private volatile Socket kept;
    /** Whether a command is kept back by {@link #keepFrom}. */
    volatile boolean keeps;
    /** How many replies were lost by {@link #loseReplyTo}. */
    final AtomicInteger lost = new AtomicInteger();

    Proxy(TestServer server) {
        this.server = server.port;
        try {
            listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        start(this::accept);
    }

    String url() {
        return "redis://127.0.0.1:" + listener.getLocalPort();
    }

    /** The server gets the next command that contains this, and the client the end of its connection. */
    void loseReplyTo(String command) {
        cutAfter = command;
    }

    /** The next command that contains this does not arrive, nor does what follows it on its connection. */
    void keepFrom(String command) {
        keepFrom = command;
    }

    /** New connections lead to this server. */
    void lead(TestServer other) {
        server = other.port;
    }

    /** The client loses the connection on which {@link #keepFrom} keeps commands back. */
    void dropKept() {
        close(kept);
    }

    /** Lets the commands that are kept back arrive now, before the end of their connection if that has ended. */
    void deliver() {
        delivery.countDown();
    }

    /** From now on the client hears nothing, on connections that stay open. */
    void silence() {
        silent = true;
    }

    void speak() {
        silent = false;
    }

    /** Ends all connections. The client may make the next one meanwhile, which a later cut ends. */
    void cut() {
        for (Socket socket : sockets) {
            sockets.remove(socket);
            close(socket);
        }
    }

    @Override
    public void close() {
        try {
            listener.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        cut();
    }

    private void accept() {
        for (;;) {
            Socket client;
            try {
                client = listener.accept();
            } catch (IOException e) {
                return;
            }
            try {
                Socket upstream = new Socket(InetAddress.getLoopbackAddress(), server);
                sockets.add(client);
                sockets.add(upstream);
                AtomicInteger cutting = new AtomicInteger();
                start(() -> pass(client, upstream, cutting, true));
                start(() -> pass(upstream, client, cutting, false));
            } catch (IOException e) {
                // The server is away.
                close(client);
            }
        }
    }

    private void pass(Socket from, Socket to, AtomicInteger cutting, boolean fromClient) {
        byte[] buffer = new byte[65536];
        try {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            for (int count; (count = in.read(buffer)) >= 0; ) {
                String text = new String(buffer, 0, count, StandardCharsets.ISO_8859_1);
                String kept = keepFrom;
                if (fromClient && kept != null && text.contains(kept)) {
                    keepFrom = null;
                    this.kept = from;
                    keeps = true;
                    delivery.await();
                }
                String cut = cutAfter;
                if (fromClient && cut != null && text.contains(cut)) {
                    cutAfter = null;
                    cutting.set(1);
                }
                if (!fromClient && cutting.get() == 1) {
                    lost.incrementAndGet();
                    break;
                }
                if (fromClient && Arrays.stream(slow).anyMatch(text::contains)) {
                    slow = new String[0];
                    cutting.set(2);
                }
                if (!fromClient) {
                    Thread.sleep(repliesTake + (cutting.compareAndSet(2, 0) ? slowTakes : 0));
                }
                if (fromClient || !silent) {
                    out.write(buffer, 0, count);
                }
            }
            if (fromClient) {
                Thread.sleep(endsTake);
                to.shutdownOutput();
                return;
            }
        } catch (IOException | InterruptedException e) {
            // A side has ended the connection.
        }
        close(from);
        close(to);
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        thread.start();
    }
}
