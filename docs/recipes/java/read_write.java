// Readers share a lock, a writer excludes all others.
import dlock.*;
import java.time.Duration;

final class ReadWrite {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port)) {
            DReadWriteLock lock = client.readWriteLock("recipe:read_write");

            Hold alice = lock.readLock().acquire();
            Hold bob = lock.readLock().acquire();
            System.out.println("alice and bob: reading");
            if (lock.writeLock().tryAcquire(Duration.ZERO).isEmpty()) {
                System.out.println("carol: not granted");
            }

            alice.release();
            bob.release();
            Hold carol = lock.writeLock().acquire();
            System.out.println("carol: writing");
            carol.release();
        }
    }
}
