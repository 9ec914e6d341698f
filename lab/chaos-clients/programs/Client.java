import dlock.DLock;
import dlock.DLockClient;
import dlock.DSemaphore;
import dlock.Hold;
import dlock.Lease;
import dlock.LockLostException;
import dlock.Session;
import dlock.TooFewReplicasException;
import dlock.UnavailableException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The program of chaos with the Java package: see README.md. */
final class Client {
    /** The requests are flat objects whose strings need no escapes; ports are the only list. */
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": *(?:\"([^\"]*)\"|\\[([^]]*)]|([^,}\\s]+))");

    /** The clients and sessions of each database, which all workers share. */
    private static final Map<String, DLockClient> CLIENTS = new HashMap<>();
    private static final Map<String, Session> SESSIONS = new HashMap<>();
    private static final Map<String, Worker> WORKERS = new ConcurrentHashMap<>();

    private Client() {}

    /** An acquisition of a worker, and the hold that it got. */
    private static final class Worker {
        volatile boolean canceled;
        volatile CompletableFuture<?> acquiring;
        volatile Hold hold;
        volatile boolean lost;

        void cancel() {
            canceled = true;
            CompletableFuture<?> future = acquiring;
            if (future != null) {
                future.cancel(true);
            }
        }

        <T> CompletableFuture<T> begins(CompletableFuture<T> future) {
            acquiring = future;
            if (canceled) {
                future.cancel(true);
            }
            return future;
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("{\"features\": [\"named\", \"slots\", \"replicas\", \"cancel\"]}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            Map<String, String> request = parsed(line);
            if (request.get("do").equals("acquire")) {
                WORKERS.put(request.get("worker"), new Worker());
            }
            Worker worker = WORKERS.get(request.get("worker"));
            new Thread(() -> {
                String answer = answer(request, worker);
                System.out.println("{\"id\": " + request.get("id") + ", " + answer + "}");
            }).start();
        }
        System.exit(0);
    }

    /** Returns the fields. Those that are null are left out. */
    private static Map<String, String> parsed(String line) {
        Map<String, String> fields = new HashMap<>();
        for (Matcher field = FIELD.matcher(line); field.find(); ) {
            String text = field.group(2) != null ? field.group(2) : field.group(3);
            String value = text != null ? text : field.group(4);
            if (text != null || !value.equals("null")) {
                fields.put(field.group(1), value);
            }
        }
        return fields;
    }

    private static String answer(Map<String, String> request, Worker worker) {
        String told = "\"at\": [" + micros() + ", " + micros() + "]";
        try {
            switch (request.get("do")) {
                case "acquire":
                    return acquire(request, worker);
                case "cancel":
                    worker.cancel();
                    return "\"result\": \"ok\"";
                case "release":
                    told = claim(worker);
                    worker.hold.release();
                    return "\"result\": \"released\", " + told;
                default:
                    return "\"result\": \"held\", " + claim(worker);
            }
        } catch (Exception e) {
            Throwable cause = e instanceof CompletionException && e.getCause() != null ? e.getCause() : e;
            String message = cause.toString().replaceAll("[\"\\\\\\n]", "'");
            String result = resultOf(cause, request.get("do"));
            return "\"result\": \"" + result + "\", \"message\": \"" + message + "\", " + told;
        }
    }

    /** Returns what a hold says of itself, between two times. */
    private static String claim(Worker worker) {
        long before = micros();
        double remaining = worker.hold.remaining().toNanos() / 1e6;
        boolean lost = worker.lost;
        return "\"at\": [" + before + ", " + micros() + "], \"remaining\": " + remaining + ", \"lost\": " + lost;
    }

    private static String acquire(Map<String, String> request, Worker worker) throws Exception {
        DLockClient client = client(request);
        Duration time = millis(request, "lease");
        Duration wait = millis(request, "wait");
        Lease lease = is(request, "named") ? Lease.of(session(request, client))
                : is(request, "keep") ? Lease.renewed(time) : Lease.fixed(time);
        int replicas = Integer.parseInt(request.get("replicas"));
        Optional<Hold> hold;
        if (request.containsKey("slots")) {
            DSemaphore pool = client.semaphore(request.get("name"), Long.parseLong(request.get("slots")))
                    .withLease(lease).withSlots();
            pool = replicas > 0 ? pool.withReplicas(replicas, Duration.ofSeconds(1)) : pool;
            hold = pool.tryAcquireHold(1, wait);
        } else {
            DLock lock = lock(request, client).withLease(lease);
            lock = replicas > 0 ? lock.withReplicas(replicas, Duration.ofSeconds(1)) : lock;
            hold = worker.begins(lock.tryAcquireAsync(wait)).join();
        }
        if (hold.isEmpty()) {
            return "\"result\": \"refused\"";
        }
        worker.hold = hold.get();
        worker.hold.onLost(loss -> worker.lost = true);
        return "\"result\": \"granted\", \"token\": " + worker.hold.fencingToken()
                + (request.containsKey("slots") ? ", \"slot\": " + worker.hold.slot() : "") + ", " + claim(worker);
    }

    private static DLock lock(Map<String, String> request, DLockClient client) {
        String name = request.get("name");
        return request.get("mode").equals("exclusive") ? client.lock(name)
                : request.get("mode").equals("read") ? client.readWriteLock(name).readLock()
                : client.readWriteLock(name).writeLock();
    }

    private static synchronized DLockClient client(Map<String, String> request) {
        String database = request.get("db");
        if (!CLIENTS.containsKey(database)) {
            String by = request.getOrDefault("by", "");
            String addresses = Arrays.stream(request.get("ports").split(", *"))
                    .map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
            String url = by.equals("sentinel") ? "redis-sentinel://" + addresses + "/locks/" + database
                    : "redis://" + addresses + (by.equals("cluster") ? "" : "/" + database);
            CLIENTS.put(database, DLockClient.connect(url));
        }
        return CLIENTS.get(database);
    }

    private static synchronized Session session(Map<String, String> request, DLockClient client) {
        Session session = SESSIONS.get(request.get("db"));
        if (session == null || !session.isOpen()) {
            session = client.openSession(millis(request, "timeout"));
            SESSIONS.put(request.get("db"), session);
        }
        return session;
    }

    private static String resultOf(Throwable failure, String task) {
        if (failure instanceof CancellationException) {
            return "canceled";
        } else if (failure instanceof TooFewReplicasException) {
            return "too-few-replicas";
        } else if (failure instanceof LockLostException) {
            return "lost";
        } else if (failure instanceof UnavailableException) {
            return task.equals("acquire") ? "unreachable" : "failed";
        }
        return "error";
    }

    private static long micros() {
        return System.nanoTime() / 1000;
    }

    private static Duration millis(Map<String, String> request, String field) {
        return Duration.ofMillis(Long.parseLong(request.get(field)));
    }

    private static boolean is(Map<String, String> request, String field) {
        return request.get(field).equals("true");
    }
}
