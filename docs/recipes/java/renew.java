// Renew a lease while the work goes on.
import dlock.*;
import java.time.Duration;

final class Renew {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port)) {
            // Lease.renewed(…), the default, does this in the background. Lease.fixed(…) leaves it to the program.
            DLock lock = client.lock("recipe:renew").withLease(Lease.fixed(Duration.ofSeconds(10)));
            Hold alice = lock.acquire();
            alice.extend(Duration.ofSeconds(10));
            System.out.println("renewed");

            alice.release();
            try {
                alice.extend(Duration.ofSeconds(10));
            } catch (LockLostException e) {
                // Stop the work. A renewal never acquires a lock.
                System.out.println("nothing to renew");
            }
        }
    }
}
