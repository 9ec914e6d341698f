// A write that a database rejects if a later owner of the lock has written.
import dlock.*;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

final class Fencing {
    public static void main(String[] arguments) throws Exception {
        String host = System.getenv().getOrDefault("DLOCK_TEST_HOST", "127.0.0.1");
        String port = System.getenv().getOrDefault("DLOCK_TEST_PORT", "6379");
        try (DLockClient client = DLockClient.connect("redis://" + host + ":" + port);
                Connection database = DriverManager.getConnection("jdbc:sqlite::memory:")) {
            database.createStatement().execute(
                    "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)");
            database.createStatement().execute("INSERT INTO report VALUES (1, '', 0)");

            DLock lock = client.lock("recipe:fencing");
            Hold alice = lock.withLease(Lease.fixed(java.time.Duration.ofMillis(50))).acquire();
            // alice is paused, for example by a garbage collection, and her lease ends. bob waits for that.
            Hold bob = lock.acquire();

            if (write(database, "by bob", bob.fencingToken())) {
                System.out.println("bob: written");
            }
            if (!write(database, "by alice", alice.fencingToken())) {
                System.out.println("alice: refused, her token is the older one");
            }
            bob.release();
        }
    }

    private static boolean write(Connection database, String body, long token) throws SQLException {
        String sql = "UPDATE report SET body = ?, fence = ? WHERE id = 1 AND fence <= ?";
        try (PreparedStatement update = database.prepareStatement(sql)) {
            update.setString(1, body);
            update.setLong(2, token);
            update.setLong(3, token);
            return update.executeUpdate() == 1;
        }
    }
}
