// Acquire a lock, or learn at once that another owner holds it.
import dlock.*;
import java.time.Duration;
import java.util.Optional;

final class Acquire {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port)) {
            DLock lock = client.lock("recipe:acquire");

            // A hold belongs to no thread, so alice and bob can share one here. See also lock.lock() and lock.unlock().
            Hold alice = lock.acquire();
            System.out.println("alice: granted");
            Optional<Hold> bob = lock.tryAcquire(Duration.ZERO);
            if (bob.isEmpty()) {
                System.out.println("bob: not granted");
            }

            // The release carries the token, so a late release cannot affect the next hold.
            alice.release();
            System.out.println("alice: released");
        }
    }
}
