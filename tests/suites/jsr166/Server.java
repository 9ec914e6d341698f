import dlock.DLockClient;
import java.util.concurrent.atomic.AtomicInteger;

/** The client of all tests. */
final class Server {
    static final DLockClient CLIENT =
        DLockClient.connect("redis://" + System.getenv("DLOCK_TEST_HOST") + ":" + System.getenv("DLOCK_TEST_PORT"));
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    private Server() { }

    /** Returns a name that no other lock has. */
    static String name() {
        return "lock:" + NUMBERS.incrementAndGet();
    }
}
