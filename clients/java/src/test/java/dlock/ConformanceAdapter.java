package dlock;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The adapter of the conformance suite: see tests/conformance/README.md. */
final class ConformanceAdapter {
    /** The requests are flat objects whose strings need no escapes. */
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": *(?:\"([^\"]*)\"|([^,}\\s]+))");

    /** A client connects when it is made, so the clients outlive the outages of the scenarios. */
    private static final Map<String, DLockClient> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, CompletableFuture<CompletableFuture<?>>> ACQUIRING = new ConcurrentHashMap<>();
    private static final Map<String, Hold> HOLDS = new ConcurrentHashMap<>();

    private static Session session;

    private ConformanceAdapter() {}

    public static void main(String[] arguments) throws Exception {
        System.out.println("{\"features\": [\"cancel\", \"outage\", \"named\", \"slots\"]}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            Map<String, String> request = parsed(line);
            if (request.get("do").equals("acquire")) {
                ACQUIRING.put(request.get("lock"), new CompletableFuture<>());
                HOLDS.remove(request.get("lock"));
            }
            new Thread(() -> {
                String answer = answer(request);
                System.out.println("{\"id\": " + request.get("id") + ", " + answer + "}");
            }).start();
        }
        System.exit(0);
    }

    /** Returns the fields. Those that are null are left out. */
    private static Map<String, String> parsed(String line) {
        Map<String, String> fields = new HashMap<>();
        for (Matcher field = FIELD.matcher(line); field.find(); ) {
            String value = field.group(2) != null ? field.group(2) : field.group(3);
            if (field.group(2) != null || !value.equals("null")) {
                fields.put(field.group(1), value);
            }
        }
        return fields;
    }

    private static String answer(Map<String, String> request) {
        String task = request.get("do");
        try {
            return result(task.equals("acquire") ? acquire(request) : task(request), "");
        } catch (Exception e) {
            return result(resultOf(Futures.cause(e), task), Futures.cause(e).toString());
        }
    }

    private static String result(String result, String message) {
        String name = result.replaceAll("[^a-z-].*", "");
        String[] numbers = result.substring(name.length()).trim().split(" ");
        String token = numbers[0];
        return "\"result\": \"" + name + "\", \"message\": \"" + message.replaceAll("[\"\\\\\\n]", "'") + "\""
                + (token.isEmpty() ? "" : ", \"token\": " + token)
                + (numbers.length < 2 ? "" : ", \"slot\": " + numbers[1]);
    }

    private static String task(Map<String, String> request) throws Exception {
        String lock = request.get("lock");
        Hold hold = HOLDS.get(lock);
        switch (request.get("do")) {
            case "release":
                if (hold == null) {
                    return "failed";
                }
                hold.release();
                return "released";
            case "extend":
                hold.extend(millis(request, "lease"));
                return "extended";
            case "lost":
                CompletableFuture<String> lost = new CompletableFuture<>();
                hold.onLost(loss -> lost.complete("lost"));
                return lost.get();
            case "cancel":
                ACQUIRING.get(lock).thenAccept(acquiring -> acquiring.cancel(true));
                return "ok";
            default:
                throw new IllegalArgumentException(request.get("do"));
        }
    }

    private static String acquire(Map<String, String> request) throws InterruptedException {
        String name = request.get("name");
        DLockClient client = CLIENTS.computeIfAbsent(
                request.get("port"), port -> DLockClient.builder().url("redis://127.0.0.1:" + port)
                        .besideOldLocks(Duration.ofMillis(100)).connect());
        if (request.containsKey("slots")) {
            return permit(request, client);
        }
        DLock lock = request.get("mode").equals("exclusive") ? client.lock(name)
                : request.get("mode").equals("read") ? client.readWriteLock(name).readLock()
                : client.readWriteLock(name).writeLock();
        Duration time = millis(request, "lease");
        lock = lock.withLease(is(request, "named") ? Lease.of(session(client))
                : is(request, "session") ? Lease.session(time)
                : is(request, "keep") ? Lease.renewed(time) : Lease.fixed(time));
        if (request.containsKey("outage")) {
            lock = lock.withPatience(millis(request, "outage"));
        }
        int replicas = Integer.parseInt(request.get("replicas"));
        if (replicas > 0) {
            lock = lock.withReplicas(replicas, millis(request, "replicas_timeout"));
        }
        // The client's own future is canceled: a stage that follows it would lose a hold that is granted meanwhile.
        Optional<Hold> hold;
        if (request.containsKey("wait")) {
            hold = join(request, lock.tryAcquireAsync(millis(request, "wait")));
        } else {
            hold = Optional.of(join(request, lock.acquireAsync()));
        }
        hold.ifPresent(held -> HOLDS.put(request.get("lock"), held));
        return hold.map(held -> "granted " + held.fencingToken()).orElse("refused");
    }

    private static String permit(Map<String, String> request, DLockClient client) throws InterruptedException {
        Duration time = millis(request, "lease");
        DSemaphore pool = client.semaphore(request.get("name"), Long.parseLong(request.get("slots")))
                .withLease(is(request, "keep") ? Lease.renewed(time) : Lease.fixed(time)).withSlots();
        Optional<Hold> hold = request.containsKey("wait")
                ? pool.tryAcquireHold(1, millis(request, "wait"))
                : Optional.of(join(request, pool.acquireAsync(1)));
        hold.ifPresent(held -> HOLDS.put(request.get("lock"), held));
        return hold.map(held -> "granted " + held.fencingToken() + " " + held.slot()).orElse("refused");
    }

    /** Returns the session that all locks that are named share. */
    private static synchronized Session session(DLockClient client) {
        if (session == null || !session.isOpen()) {
            session = client.openSession(Duration.ofSeconds(10));
        }
        return session;
    }

    private static <T> T join(Map<String, String> request, CompletableFuture<T> acquiring) {
        ACQUIRING.get(request.get("lock")).complete(acquiring);
        return acquiring.join();
    }

    private static String resultOf(Throwable failure, String task) {
        if (failure instanceof CancellationException) {
            return "canceled";
        } else if (failure instanceof TooFewReplicasException) {
            return "too-few-replicas";
        } else if (failure instanceof LockLostException) {
            return "lost";
        } else if (String.valueOf(failure.getMessage()).contains("is the dlock module loaded")) {
            return "no-module";
        } else if (!task.equals("acquire")) {
            return "failed";
        }
        return failure instanceof UnavailableException ? "unreachable" : "error";
    }

    private static Duration millis(Map<String, String> request, String field) {
        return Duration.ofMillis(Long.parseLong(request.get(field)));
    }

    private static boolean is(Map<String, String> request, String field) {
        return request.get(field).equals("true");
    }
}
