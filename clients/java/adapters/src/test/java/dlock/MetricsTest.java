package dlock;

import static dlock.TestServer.soon;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.micrometer.DLockMetrics;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.composite.CompositeMeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Meters in registries of Micrometer itself. */
final class MetricsTest {
    private static TestServer server;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    private static DLockClient client(DLockMetrics metrics) {
        return TestServer.patient().url(server.url()).listener(metrics).connect();
    }

    private static double gauge(MeterRegistry registry, String name) {
        return registry.get(name).gauge().value();
    }

    private static long waits(MeterRegistry registry, String outcome) {
        return registry.get("dlock.waits").tag("outcome", outcome).timer().count();
    }

    @Test
    void waits_holds_and_losses_are_counted() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        DLockMetrics metrics = new DLockMetrics();
        metrics.bindTo(registry);
        assertEquals(0, registry.get("dlock.losses").counter().count());
        try (DLockClient client = client(metrics)) {
            DLock lock = client.lock("metered");
            Hold hold = lock.acquire();
            CompletableFuture<Hold> waiting = lock.acquireAsync();
            server.untilWaiting("metered", 1);
            assertEquals(1, gauge(registry, "dlock.waits.active"));
            assertEquals(1, gauge(registry, "dlock.holds.active"));
            assertTrue(lock.tryAcquire(Duration.ofMillis(1000)).isEmpty());
            hold.release();
            Hold next = waiting.get(20, TimeUnit.SECONDS);
            assertEquals(2, waits(registry, "granted"));
            assertEquals(1, waits(registry, "refused"));
            assertTrue(registry.get("dlock.waits").tag("outcome", "granted").timer().max(TimeUnit.MILLISECONDS) >= 100);
            assertTrue(registry.get("dlock.holds").tag("outcome", "released").timer().max(TimeUnit.MILLISECONDS) >= 100);
            server.run("DEL", "metered");
            assertThrows(LockLostException.class, next::release);
            assertEquals(1, registry.get("dlock.losses").counter().count());
            assertEquals(1, registry.get("dlock.holds").tag("outcome", "lost").timer().count());
            server.run("SET", "text", "a");
            assertThrows(ServerException.class, client.lock("text")::lock);
            assertEquals(1, waits(registry, "failed"));
        }
        assertEquals(0, gauge(registry, "dlock.waits.active"));
        assertEquals(0, gauge(registry, "dlock.holds.active"));
    }

    /** Everybody who locks by an id would otherwise have as many time series as ids. */
    @Test
    void the_number_of_meters_does_not_depend_on_the_locks() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        DLockMetrics metrics = new DLockMetrics(Tags.of("client", "orders"));
        metrics.bindTo(registry);
        try (DLockClient client = client(metrics)) {
            client.lock("order:0").acquire().release();
            Set<Meter.Id> before = ids(registry);
            for (int i = 1; i < 20; i++) {
                client.lock("order:" + i).acquire().release();
            }
            assertEquals(before, ids(registry));
            assertTrue(before.stream().allMatch(id -> "orders".equals(id.getTag("client"))), before::toString);
            assertEquals(Set.of("dlock.holds", "dlock.holds.active", "dlock.losses", "dlock.waits", "dlock.waits.active"),
                    before.stream().map(Meter.Id::getName).collect(Collectors.toCollection(TreeSet::new)));
        }
    }

    private static Set<Meter.Id> ids(MeterRegistry registry) {
        return registry.getMeters().stream().map(Meter::getId).collect(Collectors.toSet());
    }

    @Test
    void names_are_tags_as_a_function_says() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        DLockMetrics metrics =
                new DLockMetrics(Tags.empty(), names -> Tags.of("kind", names.get(0).split(":")[0]));
        try (DLockClient client = client(metrics)) {
            Hold before = client.lock("order:1").acquire();
            metrics.bindTo(registry);
            assertEquals(1, gauge(registry, "dlock.holds.active"));
            before.release();
            client.lock("bill:1").acquire().release();
        }
        assertEquals(2, registry.get("dlock.holds").timers().size());
        assertEquals(1, registry.get("dlock.holds").tag("kind", "order").timer().count());
    }

    @Test
    void each_registry_has_the_meters_once() throws Exception {
        MeterRegistry one = new SimpleMeterRegistry();
        CompositeMeterRegistry all = new CompositeMeterRegistry();
        DLockMetrics metrics = new DLockMetrics();
        metrics.bindTo(one);
        metrics.bindTo(all);
        metrics.bindTo(all);
        SimpleMeterRegistry later = new SimpleMeterRegistry();
        all.add(later);
        try (DLockClient client = client(metrics)) {
            client.lock("both").acquire().release();
        }
        assertEquals(1, waits(one, "granted"));
        assertEquals(1, waits(later, "granted"));
    }

    @Test
    void prometheus_reads_the_meters() throws Exception {
        PrometheusMeterRegistry registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        DLockMetrics metrics = new DLockMetrics();
        metrics.bindTo(registry);
        try (DLockClient client = client(metrics)) {
            client.lock("scraped").acquire().release();
            soon("a page with the meters", () -> registry.scrape().contains("dlock_waits_seconds_count{outcome=\"granted\"} 1"));
            for (String line : new String[] {"dlock_holds_seconds_count{outcome=\"released\"} 1", "dlock_losses_total 0.0",
                "dlock_holds_active 0.0", "dlock_waits_active 0.0"}) {
                assertTrue(registry.scrape().contains(line), registry.scrape());
            }
        }
    }
}
