package dlock.testing;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A lock server for tests, without Redis: the command {@code dlock serve}. Its locks are in memory, and its clock can be
 * moved on.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final LockServer server = new LockServer();
 * }</pre>
 *
 * <p>A static field has one server for all tests of the class, an instance field one for each test. The command is
 * {@code DLOCK_COMMAND}, or {@code dlock} on the path; without it, the tests are skipped.
 */
public final class LockServer implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback {
    /** How long the command may take until it listens, and the server to answer. */
    private static final int START_MILLIS = 30_000;
    private static final int ANSWER_MILLIS = 10_000;

    private final List<String> options;
    private final Thread end = new Thread(this::kill);
    private Process process;
    private int port;
    /** The test or the class that the server was started for. */
    private String owner;

    /** A server without further options. */
    public LockServer() {
        this(new String[0]);
    }

    /**
     * A server with more options of {@code dlock serve}.
     *
     * @param options such as {@code "--set", "max-hold=60000"}
     */
    public LockServer(String... options) {
        this.options = List.of(options);
    }

    /** The port of 127.0.0.1 at which clients connect. */
    public synchronized int port() {
        if (process == null) {
            throw new IllegalStateException("the server runs only during the tests that it is registered for");
        }
        return port;
    }

    /** The URL at which clients connect. */
    public String url() {
        return "redis://127.0.0.1:" + port();
    }

    /** Moves the server's clock on: leases that end meanwhile have ended, and whoever waits for them has the lock. */
    public void advance(Duration time) {
        try (Socket socket = new Socket(InetAddress.getByAddress(new byte[] {127, 0, 0, 1}), port())) {
            socket.setSoTimeout(ANSWER_MILLIS);
            String request = "DLOCK.CLOCK ADVANCE " + time.toMillis() + "\r\n";
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            String reply = line(socket.getInputStream());
            if (reply == null || !reply.startsWith(":")) {
                throw new IllegalStateException("the clock does not move: " + reply);
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) throws IOException {
        beforeAll(context);
    }

    @Override
    public void afterEach(ExtensionContext context) throws InterruptedException {
        afterAll(context);
    }

    /** Starts the server, unless it runs. */
    @Override
    public synchronized void beforeAll(ExtensionContext context) throws IOException {
        if (process != null) {
            return;
        }
        List<String> words = new ArrayList<>(List.of(command(), "serve", "--port", "0", "--print-port", "--test-clock"));
        words.addAll(options);
        ProcessBuilder builder = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.DISCARD);
        Process started = builder.start();
        Timer limit = new Timer(true);
        limit.schedule(new TimerTask() {
            @Override
            public void run() {
                started.destroyForcibly();
            }
        }, START_MILLIS);
        String line = line(started.getInputStream());
        limit.cancel();
        if (line == null) {
            throw new IllegalStateException("dlock serve does not start: " + String.join(" ", words));
        }
        process = started;
        port = Integer.parseInt(line);
        owner = context.getUniqueId();
        // The server does not outlive the program.
        Runtime.getRuntime().addShutdownHook(end);
    }

    /** Ends the server, if it was started for this test or class. */
    @Override
    public synchronized void afterAll(ExtensionContext context) throws InterruptedException {
        if (process == null || !context.getUniqueId().equals(owner)) {
            return;
        }
        Runtime.getRuntime().removeShutdownHook(end);
        kill();
        process.waitFor();
        process = null;
    }

    private void kill() {
        process.destroyForcibly();
    }

    private static String command() {
        String named = System.getenv("DLOCK_COMMAND");
        String command = named == null || named.isEmpty() ? "dlock" : named;
        List<String> places = new ArrayList<>();
        if (command.contains(File.separator)) {
            places.add(command);
        } else {
            String path = System.getenv("PATH");
            for (String directory : (path == null ? "" : path).split(File.pathSeparator)) {
                places.add(Path.of(directory, command).toString());
            }
        }
        boolean isThere = places.stream().map(File::new).anyMatch(file -> file.isFile() && file.canExecute());
        Assumptions.assumeTrue(isThere, "there is no command dlock: install it, or set DLOCK_COMMAND");
        return command;
    }

    private static String line(InputStream from) throws IOException {
        return new BufferedReader(new InputStreamReader(from, StandardCharsets.US_ASCII)).readLine();
    }
}
