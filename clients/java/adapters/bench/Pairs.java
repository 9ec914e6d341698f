import dlock.DLock;
import dlock.DLockClient;
import dlock.Hold;
import dlock.Lease;
import dlock.jedis.JedisDriver;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

/**
 * Acquires and releases a lock again and again: what a pair costs the processor. Called by lab/packages/run.py with PORT
 * KIND PAIRS. {@code plain} is SET NX and a script that deletes, over Jedis; {@code lease} and {@code kept} use the same
 * Jedis, {@code own-lease} and {@code own-kept} the connections of the package. Prints the processor's time and the
 * elapsed time for all pairs, in µs.
 */
final class Pairs {
    private static final String DELETE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    private static final Duration TIME = Duration.ofSeconds(30);
    /** The pairs after which the code is compiled. */
    private static final int WARM = 20_000;

    private interface Pair {
        void play() throws InterruptedException;
    }

    private Pairs() {}

    public static void main(String[] words) throws InterruptedException {
        int port = Integer.parseInt(words[0]);
        int pairs = Integer.parseInt(words[2]);
        try (JedisPooled jedis = new JedisPooled("127.0.0.1", port);
                DLockClient client = words[1].startsWith("own-")
                        ? DLockClient.connect("redis://127.0.0.1:" + port)
                        : DLockClient.builder().driver(new JedisDriver(jedis)).connect()) {
            Pair pair = words[1].equals("plain") ? plain(jedis) : of(client, words[1].endsWith("kept"));
            play(pair, WARM);
            long cpu = cpu();
            long began = System.nanoTime();
            play(pair, pairs);
            System.out.println((cpu() - cpu) / 1000 + " " + (System.nanoTime() - began) / 1000);
        }
    }

    private static void play(Pair pair, int times) throws InterruptedException {
        for (int i = 0; i < times; i++) {
            pair.play();
        }
    }

    private static Pair plain(JedisPooled jedis) {
        String script = jedis.scriptLoad(DELETE, "pairs");
        return () -> {
            String owner = UUID.randomUUID().toString();
            jedis.set("pairs", owner, SetParams.setParams().nx().px(TIME.toMillis()));
            jedis.evalsha(script, List.of("pairs"), List.of(owner));
        };
    }

    private static Pair of(DLockClient client, boolean isRenewed) {
        DLock lock = client.lock("pairs").withLease(isRenewed ? Lease.renewed(TIME) : Lease.fixed(TIME));
        return () -> {
            try (Hold hold = lock.acquire()) {
                hold.fencingToken();
            }
        };
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
