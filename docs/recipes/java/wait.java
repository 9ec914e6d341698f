// Wait in the queue: one command on a connection of its own. The server answers when it grants the lock.
import dlock.*;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

final class Wait {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port)) {
            DLock lock = client.lock("recipe:wait");
            lock.withLease(Lease.fixed(Duration.ofMillis(200))).acquire(); // alice, whose lease ends soon

            // bob is this thread. An interrupt would end the wait and leave the queue.
            if (lock.tryLock(60, TimeUnit.SECONDS)) {
                try {
                    System.out.println("bob: granted after waiting");
                } finally {
                    lock.unlock();
                }
            }
        }
    }
}
