package dlock;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assertions;

/** A server with the module on a free port of this machine, and ways to see what it has. */
final class TestServer implements AutoCloseable {
    /** How long a condition may take on a busy machine. */
    private static final long PATIENCE_MILLIS = 60_000;

    /** The UDP sockets that hold the ports of this process: CONTRIBUTING.md has the rule. */
    private static final Queue<DatagramSocket> HELD = new ConcurrentLinkedQueue<>();
    /** The number of the next port to try. Processes with adjacent ids begin far apart. */
    private static final AtomicLong NEXT = new AtomicLong(ProcessHandle.current().pid() * 97);

    private static final Loop LOOP = new Loop();

    final int port;
    private final Path home;
    private final List<String> words;
    private final Profile login;
    private Process process;
    private Connection admin;

    private TestServer(int port, Path home, List<String> words, Profile login) {
        this.port = port;
        this.home = home;
        this.words = words;
        this.login = login;
    }

    static TestServer start(String... options) {
        return start(login(null, null), options);
    }

    /** Starts a server. In an option, <code>{port}</code> stands for the port of the server. */
    static TestServer start(Profile login, String... options) {
        String module = env("DLOCK_MODULE");
        return launched(port -> {
            List<String> words = new ArrayList<>(List.of(env("DLOCK_SERVER"), "--port", "" + port, "--bind",
                    "127.0.0.1", "--save", "", "--loadmodule", module));
            for (String option : options) {
                words.add(option.replace("{port}", "" + port));
            }
            return new TestServer(port, temporary(), words, login);
        });
    }

    /**
     * Starts a Sentinel of a primary with one replica, and waits until the Sentinel finds the replica fit. A Sentinel
     * takes its options from a file.
     */
    static TestServer sentinel(String name, int primary) {
        TestServer server = launched(port -> {
            Path home = temporary();
            Path config = home.resolve("sentinel.conf");
            try {
                Files.writeString(config, String.join("\n",
                        "port " + port, "bind 127.0.0.1", "dir " + home,
                        "sentinel monitor " + name + " 127.0.0.1 " + primary + " 1",
                        "sentinel down-after-milliseconds " + name + " 1000",
                        "sentinel failover-timeout " + name + " 5000", ""));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            return new TestServer(port, home, List.of(env("DLOCK_SERVER"), config.toString(), "--sentinel"),
                    login(null, null));
        });
        soon("Sentinel knows that the replica is fit", () -> {
            List<?> replicas = (List<?>) server.run("SENTINEL", "REPLICAS", name);
            return replicas.size() == 1 && "ok".equals(map(replicas.get(0)).get("master-link-status"));
        });
        return server;
    }

    /** Starts a server on a free port. Another process may take the port first: tries three ports. */
    private static TestServer launched(IntFunction<TestServer> at) {
        for (int tries = 1; ; tries++) {
            TestServer server = at.apply(freePort());
            try {
                server.launch();
                return server;
            } catch (AssertionError e) {
                server.close();
                if (tries == 3) {
                    throw e;
                }
            }
        }
    }

    static Profile login(String user, String password) {
        return new Profile(user, password, 0, "test", null);
    }

    /** Returns a port where nobody listens, and that no other suite takes as long as this process runs. */
    static int freePort() {
        for (;;) {
            int port = 11_000 + (int) (NEXT.getAndIncrement() % 10_000);
            try {
                DatagramSocket held = new DatagramSocket(port, InetAddress.getLoopbackAddress());
                try (ServerSocket free = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                    HELD.add(held);
                    return port;
                } catch (IOException e) {
                    held.close();
                }
            } catch (IOException e) {
                // The port is held already.
            }
        }
    }

    static String env(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new AssertionError(name + " is not set");
        }
        return value;
    }

    static Path temporary() {
        try {
            return Files.createTempDirectory("dlock-java");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Path home() {
        return home;
    }

    /** Starts the server, or starts it again after {@link #kill}. */
    void launch() {
        try {
            process = new ProcessBuilder(words)
                    .directory(home.toFile())
                    .redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(home.toFile(), "log")))
                    .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        soon("the server answers", () -> {
            if (!process.isAlive()) {
                throw new AssertionError("the server ended: " + log());
            }
            try {
                // The port may belong to a server of another test.
                return figure("server", "process_id") == process.pid() && run("PING") != null;
            } catch (DLockException | Unanswered e) {
                return false;
            }
        });
    }

    private String log() {
        try {
            return Files.readString(home.resolve("log"));
        } catch (IOException e) {
            return "no log: " + e;
        }
    }

    void kill() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Stops the server from doing anything, like a machine that hangs. */
    void freeze() {
        signal("-STOP");
    }

    void thaw() {
        signal("-CONT");
    }

    private void signal(String signal) {
        if (!process.isAlive()) {
            return;
        }
        try {
            new ProcessBuilder("kill", signal, "" + process.pid()).inheritIO().start().waitFor();
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void close() {
        if (admin != null) {
            admin.close();
        }
        kill();
        try (Stream<Path> files = Files.walk(home)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    String url() {
        return "redis://127.0.0.1:" + port;
    }

    DLockClient client() {
        return connected(url());
    }

    /**
     * Returns a builder of clients for tests whose subject is not how long a client waits for an answer: so long that a
     * machine with many times more work than cores answers in time. A test sets the limits that it is about.
     */
    static DLockClient.Builder patient() {
        Duration time = Duration.ofSeconds(20);
        return DLockClient.builder().timeout(time).tries(time).patience(Duration.ofMillis(PATIENCE_MILLIS));
    }

    /** Returns a client with the limits of {@link #patient}. */
    static DLockClient connected(String url) {
        return patient().url(url).connect();
    }

    /** Returns the reply to a command. */
    synchronized Object run(Object... command) {
        if (admin == null || admin.ended().isDone()) {
            admin = joined(Connection.open(LOOP, new Address("127.0.0.1", port), login, 5000));
        }
        return joined(Node.limited(admin, admin.send(Words.command(command)), 20_000));
    }

    static <T> T joined(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException e) {
            throw (RuntimeException) Futures.cause(e);
        }
    }

    /** Returns what INFO says of a lock, with text for strings; empty if there is none. */
    Map<String, Object> info(String name, Object... options) {
        List<Object> words = new ArrayList<>(List.of("DLOCK.INFO", name));
        words.addAll(Arrays.asList(options));
        Object reply = run(words.toArray());
        return reply == null ? Map.of() : map(reply);
    }

    static Map<String, Object> map(Object flat) {
        List<?> fields = (List<?>) flat;
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < fields.size(); i += 2) {
            Object value = fields.get(i + 1);
            map.put(Words.text(fields.get(i)), value instanceof byte[] ? Words.text(value) : value);
        }
        return map;
    }

    /** Returns this field of each entry in a list of INFO: {@code holds} or {@code queue}. */
    List<Object> each(String name, String list, String field) {
        List<Object> values = new ArrayList<>();
        Object all = info(name, "FULL", "COUNT", 0).getOrDefault(list, List.of());
        for (Object one : (List<?>) all) {
            values.add(map(one).get(field));
        }
        return values;
    }

    long waiters(String name) {
        return (long) info(name).getOrDefault("waiters", 0L);
    }

    long count(String name) {
        return (long) info(name).getOrDefault("count", 0L);
    }

    boolean isFree(String name) {
        return info(name).isEmpty();
    }

    void untilWaiting(String name, long waiters) {
        soon(waiters + " wait for " + name, () -> waiters(name) == waiters);
    }

    /**
     * Fails unless ten waiters are served in order after that time. On a busy machine, the command of a waiter may time
     * out before the waiter's next command has taken over its place. The server counts this, and then all wait again.
     */
    void servesInOrder(DLock lock, long millis) throws Exception {
        String name = lock.names().get(0);
        for (long lost = 1; lost > 0; ) {
            lost = -figure("dlock", "dlock_wait_timeouts");
            List<Integer> served = Collections.synchronizedList(new ArrayList<>());
            List<CompletableFuture<Void>> waiting = new ArrayList<>();
            Hold hold = lock.acquire();
            for (int i = 0; i < 10; i++) {
                int number = i;
                waiting.add(lock.acquireAsync().thenAccept(each -> {
                    served.add(number);
                    each.releaseAsync();
                }));
                untilWaiting(name, i + 1);
            }
            Thread.sleep(millis);
            untilWaiting(name, 10);
            hold.release();
            for (CompletableFuture<Void> each : waiting) {
                each.get(20, TimeUnit.SECONDS);
            }
            soon("all are released", () -> isFree(name));
            lost += figure("dlock", "dlock_wait_timeouts");
            if (lost == 0) {
                Assertions.assertEquals(List.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), served);
            }
        }
    }

    /** Returns how often the server has executed a command of dlock. */
    long calls(String command) {
        for (String line : Words.text(run("INFO", "commandstats")).split("\r\n")) {
            if (line.toLowerCase().startsWith("cmdstat_dlock." + command + ":calls=")) {
                return Long.parseLong(line.substring(line.indexOf('=') + 1, line.indexOf(',')));
            }
        }
        return 0;
    }

    /** Returns a field of INFO, as a number. */
    long figure(String section, String field) {
        String text = new String((byte[]) run("INFO", section), StandardCharsets.UTF_8);
        for (String line : text.split("\r\n")) {
            if (line.startsWith(field + ":")) {
                return Long.parseLong(line.substring(field.length() + 1));
            }
        }
        throw new AssertionError("no " + field + " in INFO " + section);
    }

    /** Sleeps this many ms, and fails if it is interrupted. */
    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Waits until a condition holds. */
    static void soon(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MILLIS);
        while (!holds(condition)) {
            if (System.nanoTime() > end) {
                throw new AssertionError("waited in vain: " + what);
            }
            try {
                Thread.sleep(2);
            } catch (InterruptedException e) {
                throw new AssertionError("interrupted while waiting: " + what, e);
            }
        }
    }

    private static boolean holds(BooleanSupplier condition) {
        try {
            return condition.getAsBoolean();
        } catch (Unanswered e) {
            // A server that becomes a primary ends its connections.
            return false;
        }
    }

    /**
     * Fails unless the server refuses the lock. On a busy machine, the server's answer may come too late for the
     * client: then the acquisition is repeated.
     */
    static void refused(Callable<?> acquisition) {
        Object[] outcome = new Object[1];
        soon("an answer in time", () -> {
            try {
                outcome[0] = acquisition.call();
                return true;
            } catch (UnavailableException e) {
                return false;
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        });
        if (!Boolean.FALSE.equals(outcome[0]) && !Optional.empty().equals(outcome[0])) {
            throw new AssertionError("the lock was granted: " + outcome[0]);
        }
    }

    /** Has another thread do the work, and waits for the result. */
    static <T> T elsewhere(Supplier<T> work) {
        return joined(CompletableFuture.supplyAsync(work, task -> new Thread(task).start()));
    }
}
