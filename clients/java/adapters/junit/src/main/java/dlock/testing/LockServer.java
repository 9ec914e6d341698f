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
 * A lock server for tests, without Redis: the command {@code dlock serve}. Its locks are in memory, and a test can move
 * its clock forward.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final LockServer server = new LockServer();
 * }</pre>
 *
 * <p>A static field has one server for all tests of the class, an instance field one for each test. The environment
 * variable {@code DLOCK_COMMAND} names the command; without it, the command is {@code dlock} on the path. If there is
 * no such command, the tests are skipped.
 */
public final class LockServer implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback {
    /** How long the command may take until the server listens. */
    private static final int START_MILLIS = 30_000;
    /** How long the server may take to answer. */
    private static final int ANSWER_MILLIS = 10_000;

    private final List<String> options;
    private final Thread end = new Thread(this::kill);
    private Process process;
    private int port;
    /** The unique id of the test or the class that the server was started for. */
    private String owner;

    /** Makes a server without further options. It starts with the tests. */
    public LockServer() {
        this(new String[0]);
    }

    /**
     * Makes a server with more options of {@code dlock serve}. It starts with the tests.
     *
     * @param options such as {@code "--set", "max-hold=60000"}
     */
    public LockServer(String... options) {
        this.options = List.of(options);
    }

    /** Returns the port of 127.0.0.1 at which clients connect. */
    public synchronized int port() {
        if (process == null) {
            throw new IllegalStateException("the server runs only during the tests that it is registered for");
        }
        return port;
    }

    /** Returns the URL at which clients connect. */
    public String url() {
        return "redis://127.0.0.1:" + port();
    }

    /** Moves the server's clock forward. Leases that end in that time end, and their locks go to those that wait. */
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

    /** Starts the server, unless it runs already. */
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
        // The server must not outlive the program.
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
