package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Users, passwords, databases and TLS. */
final class SecureTest {
    /** The answer of a server that was built without TLS to the TLS options. */
    private static final Pattern NO_TLS = Pattern.compile("Failed finding TLS support|Bad directive.*\\n?.*tls");
    private static final char[] SECRET = "secret".toCharArray();

    private static Path home;
    private static TestServer server;
    private static int tlsPort;
    private static SSLContext trusting;

    @BeforeAll
    static void start() throws Exception {
        home = TestServer.temporary();
        KeyStore here = certificate("here", "ip:127.0.0.1");
        pem(here, "here");
        trusting = context(here, here);
        tlsPort = TestServer.freePort();
        try {
            server = TestServer.start("--tls-port", "" + tlsPort, "--tls-auth-clients", "no",
                    "--tls-cert-file", home.resolve("here.crt").toString(),
                    "--tls-key-file", home.resolve("here.key").toString(),
                    "--tls-ca-cert-file", home.resolve("here.crt").toString());
        } catch (AssertionError e) {
            Skip.unless(!NO_TLS.matcher(e.getMessage()).find(), "SecureTest", "this server was built without TLS");
            throw e;
        }
    }

    @AfterAll
    static void stop() throws Exception {
        if (server != null) {
            server.close();
        }
        for (File file : home.toFile().listFiles()) {
            Files.delete(file.toPath());
        }
        Files.delete(home);
    }

    private static DLockClient.Builder tls() {
        return TestServer.patient().url("rediss://127.0.0.1:" + tlsPort).sslContext(trusting);
    }

    @Test
    void a_lock_over_tls() throws Exception {
        try (DLockClient client = tls().connect()) {
            DLock lock = client.lock("tls");
            lock.lock();
            CompletableFuture<Hold> waiting = client.lock("tls").acquireAsync();
            server.untilWaiting("tls", 1);
            lock.unlock();
            waiting.get(20, TimeUnit.SECONDS).release();
            try (Hold session = lock.withLease(Lease.session(Duration.ofSeconds(5))).acquire()) {
                assertEquals(session.fencingToken(), server.info("tls").get("token"));
            }
            soon("the lock is free", () -> server.isFree("tls"));
        }
    }

    @Test
    void long_commands_and_replies_pass_through_tls() {
        String name = "n".repeat(100_000);
        try (DLockClient client = tls().connect()) {
            for (int i = 0; i < 20; i++) {
                DLock lock = client.lock(name + i);
                lock.lock();
                assertTrue(lock.isLocked());
                lock.unlock();
            }
        }
    }

    @Test
    void races_of_interrupt_against_grant_leave_no_hold_over_tls() throws Exception {
        try (DLockClient client = tls().connect()) {
            DLock lock = client.lock("race");
            for (int round = 0; round < 50; round++) {
                Hold hold = lock.acquire();
                FutureTask<Void> locking = new FutureTask<>(() -> {
                    try {
                        lock.lockInterruptibly();
                        lock.unlock();
                    } catch (InterruptedException e) {
                        // The interrupt came before the grant.
                    }
                    return null;
                });
                Thread thread = new Thread(locking);
                thread.start();
                server.untilWaiting("race", 1);
                CompletableFuture<Boolean> released = hold.releaseAsync();
                thread.interrupt();
                locking.get(20, TimeUnit.SECONDS);
                released.join();
                TestServer.soon("nothing is left of round " + round, () -> server.isFree("race"));
            }
        }
    }

    @Test
    void a_certificate_that_is_not_trusted_is_refused() {
        DLockClient.Builder untrusting = TestServer.patient().url("rediss://127.0.0.1:" + tlsPort);
        assertThrows(UnavailableException.class, untrusting::connect);
    }

    @Test
    void a_certificate_for_another_host_is_refused() throws Exception {
        DLockClient.Builder elsewhere =
                TestServer.patient().url("rediss://localhost:" + tlsPort).sslContext(trusting);
        UnavailableException refused = assertThrows(UnavailableException.class, elsewhere::connect);
        assertTrue(refused.getMessage().contains("localhost"), refused.getMessage());
    }

    @Test
    void tls_on_one_side_only_is_refused() {
        DLockClient.Builder plain = tls().url("rediss://127.0.0.1:" + server.port).timeout(Duration.ofSeconds(2));
        assertThrows(UnavailableException.class, plain::connect);
        assertThrows(UnavailableException.class, DLockClient.builder()
                .url("redis://127.0.0.1:" + tlsPort).timeout(Duration.ofSeconds(2))::connect);
        assertThrows(IllegalArgumentException.class, tls().url(server.url())::connect);
    }

    @Test
    void a_client_shows_its_certificate() throws Exception {
        server.run("CONFIG", "SET", "tls-auth-clients", "yes");
        try {
            try (DLockClient client = tls().connect()) {
                assertFalse(client.lock("mutual").isLocked());
            }
            KeyStore other = certificate("stranger", "ip:127.0.0.1");
            DLockClient.Builder stranger =
                    tls().sslContext(context(other, load("here"))).timeout(Duration.ofSeconds(2));
            assertThrows(UnavailableException.class, stranger::connect);
        } finally {
            server.run("CONFIG", "SET", "tls-auth-clients", "no");
        }
    }

    @Test
    void users_log_in_with_a_password() {
        server.run("ACL", "SETUSER", "java", "on", ">p:w/d", "~lock:*", "+@all");
        try (DLockClient client = TestServer.connected("redis://java:p%3Aw%2Fd@127.0.0.1:" + server.port)) {
            DLock lock = client.lock("lock:1");
            lock.lock();
            lock.unlock();
            assertEquals("NOPERM", assertThrows(ServerException.class, client.lock("other")::lock).code());
        }
        try (DLockClient client =
                TestServer.patient().url(server.url()).credentials("java", "p:w/d").clientName("jobs").connect()) {
            assertFalse(client.lock("lock:1").isLocked());
            String clients = new String((byte[]) server.run("CLIENT", "LIST"), StandardCharsets.UTF_8);
            assertTrue(clients.contains("name=jobs") && clients.contains("user=java"), clients);
        }
        ServerException refused = assertThrows(ServerException.class,
                () -> TestServer.connected("redis://java:wrong@127.0.0.1:" + server.port));
        assertEquals("WRONGPASS", refused.code());
    }

    @Test
    void the_default_user_may_have_a_password() {
        server.run("CONFIG", "SET", "requirepass", "open");
        try {
            assertEquals("NOAUTH", assertThrows(ServerException.class, server::client).code());
            try (DLockClient client = TestServer.connected("redis://:open@127.0.0.1:" + server.port)) {
                assertFalse(client.lock("password").isLocked());
            }
        } finally {
            server.run("CONFIG", "SET", "requirepass", "");
        }
    }

    @Test
    void a_lock_is_in_its_database() {
        try (DLockClient client = TestServer.connected(server.url() + "/3")) {
            DLock lock = client.lock("database");
            lock.lock();
            assertTrue(server.isFree("database"));
            server.run("SELECT", 3);
            assertEquals(1, server.count("database"));
            server.run("SELECT", 0);
            lock.unlock();
        }
        assertThrows(ServerException.class, () -> DLockClient.connect(server.url() + "/1000"));
    }

    private static KeyStore certificate(String name, String forHost) throws Exception {
        List<String> keytool = new ArrayList<>(List.of(keytool(), "-genkeypair", "-alias", name, "-keyalg", "RSA",
                "-keysize", "2048", "-dname", "CN=" + name, "-ext", "san=" + forHost, "-validity", "2",
                "-storetype", "PKCS12", "-keystore", home.resolve(name + ".p12").toString(),
                "-storepass", new String(SECRET)));
        Process process = new ProcessBuilder(keytool).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        return load(name);
    }

    private static String keytool() {
        Path own = Path.of(System.getProperty("java.home"), "bin", "keytool");
        return Files.exists(own) ? own.toString() : "keytool";
    }

    private static KeyStore load(String name) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(home.resolve(name + ".p12"))) {
            store.load(in, SECRET);
        }
        return store;
    }

    /** Writes the private key and its certificate in PEM, which the server reads. */
    private static void pem(KeyStore store, String name) throws Exception {
        Base64.Encoder lines = Base64.getMimeEncoder(64, new byte[] {'\n'});
        Key key = store.getKey(name, SECRET);
        Files.writeString(home.resolve(name + ".key"), "-----BEGIN PRIVATE KEY-----\n"
                + lines.encodeToString(key.getEncoded()) + "\n-----END PRIVATE KEY-----\n");
        Files.writeString(home.resolve(name + ".crt"), "-----BEGIN CERTIFICATE-----\n"
                + lines.encodeToString(store.getCertificate(name).getEncoded()) + "\n-----END CERTIFICATE-----\n");
    }

    /** Returns a context that shows the certificate in {@code own} and trusts the one in {@code trusted}. */
    private static SSLContext context(KeyStore own, KeyStore trusted) throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, SECRET);
        KeyStore certificates = KeyStore.getInstance("PKCS12");
        certificates.load(null, null);
        String name = trusted.aliases().nextElement();
        certificates.setCertificateEntry(name, trusted.getCertificate(name));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(certificates);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
