import dlock.DLockClient;
import dlock.Hold;
import dlock.Lease;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The worker of {@code make rivals} for Java: Redisson's lock, its fair lock and ours. run.py has the arguments. */
final class Worker {
    private static final Duration LEASE = Duration.ofSeconds(10);
    private static final String NAME = "rivals";
    /** The time between the starts of two waiters, in ms. */
    private static final long GAP = 40;
    /** The time for which a waiter holds the lock, in ms. */
    private static final long WORK = 5;

    /** An acquisition of the lock. Returns the release. */
    private interface Acquire {
        Runnable acquire() throws InterruptedException;
    }

    private Worker() {}

    public static void main(String[] words) throws InterruptedException, IOException {
        String url = "redis://127.0.0.1:" + words[1];
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        if (words[0].equals("line")) {
            // The first client holds the lock, the others wait for it.
            List<Acquire> all = new ArrayList<>();
            for (int i = 0; i <= Integer.parseInt(words[3]); i++) {
                all.add(of(words[2], url));
            }
            System.out.println("ready");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                List<String> rounds = new ArrayList<>();
                for (int round = 0; round < Integer.parseInt(line); round++) {
                    rounds.add(play(all.get(0), all.subList(1, all.size())));
                }
                System.out.println(rounds);
            }
        } else {
            Acquire one = of(words[2], url);
            System.out.println("asks");
            one.acquire();
            System.out.println("has it");
            lines.readLine();
        }
        // The threads of the clients would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    /** Returns an acquisition over a client of its own. */
    private static Acquire of(String kind, String url) {
        if (kind.startsWith("redisson")) {
            RedissonClient client = redisson(url);
            RLock lock = kind.equals("redisson") ? client.getLock(NAME) : client.getFairLock(NAME);
            return () -> {
                lock.lock();
                return lock::unlock;
            };
        }
        DLockClient client = DLockClient.connect(url);
        Lease lease = kind.endsWith("session") ? Lease.session(LEASE) : Lease.renewed(LEASE);
        return () -> {
            Hold hold = client.lock(NAME).withLease(lease).acquire();
            return hold::release;
        };
    }

    /** Returns a client with few threads and connections, because one process has many clients. */
    private static RedissonClient redisson(String url) {
        Config config = new Config();
        config.setLockWatchdogTimeout(LEASE.toMillis()).setThreads(2).setNettyThreads(2);
        config.useSingleServer()
                .setAddress(url)
                .setConnectionPoolSize(4)
                .setConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(1);
        return Redisson.create(config);
    }

    /**
     * Plays a round: the other clients join the queue while the first one holds the lock, and then get it in turn.
     * Returns JSON with times in ns: that of the first release, and of each other client those of its request, its
     * grant and its release.
     */
    private static String play(Acquire first, List<Acquire> others) throws InterruptedException {
        Runnable release = first.acquire();
        long[][] seen = new long[others.size()][3];
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < seen.length; i++) {
            Acquire one = others.get(i);
            long[] times = seen[i];
            Thread thread = new Thread(() -> waitInTurn(one, times));
            threads.add(thread);
            thread.start();
            Thread.sleep(GAP);
        }
        long released = System.nanoTime();
        release.run();
        for (Thread thread : threads) {
            thread.join();
        }
        return "{\"released\":" + released + ",\"waiters\":" + List.of(seen).stream()
                .map(times -> List.of(times[0], times[1], times[2]).toString())
                .collect(Collectors.toList()) + "}";
    }

    private static void waitInTurn(Acquire one, long[] times) {
        try {
            times[0] = System.nanoTime();
            Runnable release = one.acquire();
            times[1] = System.nanoTime();
            Thread.sleep(WORK);
            times[2] = System.nanoTime();
            release.run();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
