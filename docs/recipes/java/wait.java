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
            // alice is the owner of this hold: `acquire` takes a new owner each time. Her lease ends after 200 ms.
            lock.withLease(Lease.fixed(Duration.ofMillis(200))).acquire();

            // bob is this thread: `tryLock` acquires for the thread. An interrupt would end the wait.
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
