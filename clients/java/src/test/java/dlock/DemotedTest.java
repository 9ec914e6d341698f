package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Tests of a server that becomes a replica while a lock is acquired, kept or released: its answers do not count. */
final class DemotedTest {
    private static final Duration LONG = Duration.ofSeconds(20);
    /** The errors of a replica, of a connection that another request has closed because of one, and of silence. */
    private static final Pattern NO_PRIMARY =
            Pattern.compile("READONLY|WAIT cannot be used|UNBLOCKED|closed by the client|in time");

    /** A primary with a replica, a proxy that leads to the primary, and a client over the proxy. */
    private static final class Servers implements AutoCloseable {
        final TestServer primary = TestServer.start("--repl-diskless-sync-delay", "0");
        final TestServer replica = TestServer.start("--repl-diskless-sync-delay", "0");
        final Proxy proxy = new Proxy(primary);
        final DLockClient client;
        final DLock lock;

        Servers() {
            this(TestServer.patient());
        }

        /** {@code builder}: that of the client. */
        Servers(DLockClient.Builder builder) {
            client = builder.url(proxy.url()).connect();
            lock = client.lock("job").withReplicas(1, LONG);
            replica.run("REPLICAOF", "127.0.0.1", primary.port);
            soon("the replica is connected", () -> new String(
                    (byte[]) replica.run("INFO", "replication"), StandardCharsets.UTF_8).contains("master_link_status:up"));
        }

        /**
         * Swaps the roles of the servers once the proxy keeps a command back, then lets the command arrive.
         *
         * @param leads whether new connections lead to the new primary
         */
        void demote(boolean leads) {
            soon("a command is kept back", () -> proxy.keeps);
            soon("the replica has the grant", () -> !replica.isFree("job"));
            replica.run("REPLICAOF", "NO", "ONE");
            primary.run("REPLICAOF", "127.0.0.1", replica.port);
            if (leads) {
                proxy.lead(replica);
            }
            proxy.deliver();
        }

        @Override
        public void close() {
            client.close();
            proxy.close();
            primary.close();
            replica.close();
        }
    }

    /** The point at which the primary is demoted: a command is on its way, after a grant at once or after a wait. */
    private static final class Moment {
        static final List<Moment> ALL =
                List.of(new Moment("WAIT", false), new Moment("WAIT", true), new Moment("DLOCK.RENEW", true));

        final String word;
        final boolean waits;

        Moment(String word, boolean waits) {
            this.word = word;
            this.waits = waits;
        }

        /** Asks for the lock. The proxy keeps the command back. */
        CompletableFuture<Optional<Hold>> asked(Servers servers, DLock lock, Duration limit) {
            if (!waits) {
                servers.proxy.keepFrom(word);
                return lock.tryAcquireAsync(limit);
            }
            servers.primary.run("DLOCK.ACQUIRE", "job", "other", "PX", "60000");
            CompletableFuture<Optional<Hold>> acquiring = lock.tryAcquireAsync(limit);
            servers.primary.untilWaiting("job", 1);
            servers.proxy.keepFrom(word);
            servers.primary.run("DLOCK.RELEASE", "job", "other");
            return acquiring;
        }
    }

    /** Returns the builder of a client that soon reports an outage. */
    private static DLockClient.Builder impatient() {
        return DLockClient.builder().patience(Duration.ofSeconds(2));
    }

    /** Asserts that a failure says that no server answered, because of the errors of a replica. */
    private static void isNoAnswer(Throwable failure) {
        assertTrue(failure instanceof UnavailableException, String.valueOf(failure));
        assertTrue(NO_PRIMARY.matcher(String.valueOf(failure.getMessage())).find(), failure.getMessage());
    }

    @Test
    void a_lock_is_acquired_from_the_new_primary() throws Exception {
        for (Moment moment : Moment.ALL) {
            for (boolean isSession : new boolean[] {false, true}) {
                try (Servers servers = new Servers()) {
                    DLock lock = isSession ? servers.lock.withLease(Lease.session(LONG)) : servers.lock;
                    CompletableFuture<Optional<Hold>> acquiring = moment.asked(servers, lock, LONG);
                    servers.demote(true);
                    Hold hold = acquiring.get(30, TimeUnit.SECONDS).orElseThrow();
                    assertEquals(hold.fencingToken(), servers.replica.info("job").get("token"));
                    assertTrue(hold.isHeld());
                    hold.release();
                    assertTrue(servers.replica.isFree("job"));
                }
            }
        }
    }

    @Test
    void a_server_that_stays_a_replica_is_no_answer() throws Exception {
        List<Servers> all = new ArrayList<>();
        List<CompletableFuture<?>> acquiring = new ArrayList<>();
        try {
            for (Moment moment : Moment.ALL) {
                // A request that waits has got nil once. With a limit it would end as not granted, so it has none.
                Duration limit = Duration.ofSeconds(moment.waits ? Long.MAX_VALUE : 4);
                Servers servers = new Servers(impatient());
                all.add(servers);
                acquiring.add(moment.asked(servers, servers.lock, limit));
                servers.demote(false);
            }
            for (CompletableFuture<?> each : acquiring) {
                isNoAnswer(assertThrows(ExecutionException.class, () -> each.get(30, TimeUnit.SECONDS)).getCause());
            }
        } finally {
            all.forEach(Servers::close);
        }
    }

    @Test
    void a_grant_that_the_new_primary_lacks_does_not_count() throws Exception {
        try (Servers servers = new Servers()) {
            CompletableFuture<Optional<Hold>> acquiring = Moment.ALL.get(0).asked(servers, servers.lock, LONG);
            soon("a command is kept back", () -> servers.proxy.keeps);
            servers.replica.run("REPLICAOF", "NO", "ONE");
            servers.replica.run("FLUSHALL");
            servers.replica.run("DLOCK.ACQUIRE", "job", "other", "PX", "60000");
            servers.demote(true);
            servers.replica.untilWaiting("job", 1);
            assertFalse(acquiring.isDone());
            servers.replica.run("DLOCK.RELEASE", "job", "other");
            Hold hold = acquiring.get(30, TimeUnit.SECONDS).orElseThrow();
            assertEquals(hold.fencingToken(), servers.replica.info("job").get("token"));
            hold.release();
        }
    }

    @Test
    void what_a_demoted_server_says_of_a_hold_is_no_answer() throws Exception {
        try (Servers servers = new Servers(impatient())) {
            DLock plain = servers.client.lock("plain");
            List<Hold> holds = List.of(plain.acquire(), servers.lock.acquire(),
                    servers.client.lock("session").withLease(Lease.session(LONG)).acquire(),
                    servers.client.lock("both").withReplicas(1, LONG).withLease(Lease.session(LONG)).acquire());
            // No command is kept back: the field only lets demote() go on.
            servers.proxy.keeps = true;
            servers.demote(false);
            List<CompletableFuture<Void>> calls = new ArrayList<>();
            for (Hold hold : holds) {
                calls.add(CompletableFuture.runAsync(() -> {
                    isNoAnswer(assertThrows(DLockException.class, () -> hold.extend(LONG)));
                    assertThrows(UnavailableException.class, hold::release);
                }));
            }
            for (CompletableFuture<Void> call : calls) {
                call.get(60, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void a_release_that_was_only_refused_and_then_finds_nothing_tells_the_loss() throws Exception {
        for (Lease lease : List.of(Lease.fixed(LONG), Lease.session(LONG))) {
            try (Servers servers = new Servers()) {
                Hold hold = servers.client.lock("job").withLease(lease).acquire();
                servers.proxy.keeps = true;
                servers.demote(true);
                servers.replica.run("DEL", "job");
                assertThrows(LockLostException.class, hold::release);
            }
        }
    }

    @Test
    void a_server_that_is_a_replica_for_long_is_an_outage() throws Exception {
        try (Servers servers = new Servers();
                DLockClient its = impatient().url(servers.replica.url()).connect()) {
            List<CompletableFuture<?>> acquiring = new ArrayList<>();
            for (DLock lock : List.of(its.lock("job"), its.lock("job").withReplicas(1, LONG),
                    its.lock("job").withLease(Lease.session(LONG)))) {
                acquiring.add(lock.acquireAsync());
                acquiring.add(lock.tryAcquireAsync(Duration.ofSeconds(1)));
                acquiring.add(lock.tryAcquireAsync(Duration.ZERO));
            }
            for (CompletableFuture<?> each : acquiring) {
                isNoAnswer(assertThrows(ExecutionException.class, () -> each.get(20, TimeUnit.SECONDS)).getCause());
            }
        }
    }

    @Test
    void a_renewal_with_replicas_finds_the_new_primary() throws Exception {
        try (Servers servers = new Servers()) {
            Hold hold = servers.lock.withLease(Lease.fixed(LONG)).acquire();
            servers.proxy.keeps = true;
            servers.demote(true);
            hold.extend(LONG.multipliedBy(2));
            assertTrue((long) servers.replica.info("job").get("ttl") > LONG.toMillis());
            hold.release();
            assertTrue(servers.replica.isFree("job"));
        }
    }
}
