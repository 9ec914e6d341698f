// A lock that ends with its connection: the server renews it, and releases it when the connection closes.
import dlock.*;
import java.time.Duration;
import java.util.Optional;

final class Session {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        String url = "redis://" + host + ":" + port;

        DLockClient alice = DLockClient.connect(url);
        alice.lock("recipe:session").withLease(Lease.session(Duration.ofSeconds(10))).lock();
        alice.close(); // or the process dies

        try (DLockClient bob = DLockClient.connect(url)) {
            Optional<Hold> hold = bob.lock("recipe:session").tryAcquire(Duration.ofSeconds(5));
            if (hold.isPresent()) {
                System.out.println("bob: granted when the connection of alice ended");
                hold.get().release();
            }
        }
    }
}
