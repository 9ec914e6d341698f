package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.micrometer.DLockMetrics;
import dlock.spring.DLockRegistry;
import dlock.spring.boot.DLockAutoConfiguration;
import dlock.spring.boot.DLockRegistryAutoConfiguration;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.LockRegistry;

/** Applications of Spring Boot. */
final class BootTest {
    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithOwnClient {
        static DLockClient client;

        @Bean
        DLockClient own() {
            return client;
        }
    }

    /** Without Actuator. */
    @Configuration(proxyBeanMethods = false)
    @ImportAutoConfiguration(DLockAutoConfiguration.class)
    static class WithOwnRegistry {
        @Bean
        MeterRegistry registry() {
            return new SimpleMeterRegistry();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ImportAutoConfiguration(DLockAutoConfiguration.class)
    static class WithoutRegistry {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithOwnMeters {
        static final List<String> HELD = new CopyOnWriteArrayList<>();

        @Bean
        DLockMetrics own() {
            return new DLockMetrics(Tags.of("client", "orders"));
        }

        @Bean
        LockListener listener() {
            return new LockListener() {
                @Override
                public void held(List<String> names) {
                    HELD.addAll(names);
                }
            };
        }
    }

    /** Each client with meters of its own. */
    static class TwoClients {
        static TestServer server;

        @Bean
        DLockMetrics ordersMeters() {
            return new DLockMetrics(Tags.of("client", "orders"));
        }

        @Bean
        DLockMetrics billsMeters() {
            return new DLockMetrics(Tags.of("client", "bills"));
        }

        @Bean
        DLockClient orders(@Qualifier("ordersMeters") DLockMetrics meters) {
            return TestServer.patient().url(server.url()).listener(meters).connect();
        }

        @Bean
        DLockClient bills(@Qualifier("billsMeters") DLockMetrics meters) {
            return TestServer.patient().url(server.url()).listener(meters).connect();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithTwoClients extends TwoClients {}

    /** Without Actuator. */
    @Configuration(proxyBeanMethods = false)
    @ImportAutoConfiguration({DLockAutoConfiguration.class, DLockRegistryAutoConfiguration.class})
    static class WithTwoClientsAndOwnRegistry extends TwoClients {
        @Bean
        MeterRegistry registry() {
            return new SimpleMeterRegistry();
        }
    }

    private static ConfigurableApplicationContext run(Class<?> application, String... settings) {
        SpringApplication boot = new SpringApplication(application);
        boot.setWebApplicationType(WebApplicationType.NONE);
        boot.setRegisterShutdownHook(false);
        return boot.run(settings);
    }

    @Test
    void an_application_has_a_client_and_a_lock_registry() {
        try (TestServer server = TestServer.start()) {
            DLockClient client;
            try (ConfigurableApplicationContext context = run(Application.class,
                    "--dlock.url=" + server.url() + "/3", "--dlock.owner=orders", "--dlock.lease=7s",
                    "--dlock.registry-prefix=orders:")) {
                client = context.getBean(DLockClient.class);
                Lock lock = context.getBean(LockRegistry.class).obtain("7");
                assertTrue(lock.tryLock());
                server.run("SELECT", 3);
                assertTrue(((String) server.each("orders:7", "holds", "owner").get(0)).startsWith("orders:1:"));
                assertTrue((long) server.run("PTTL", "orders:7") <= 7000);
                context.getBean(DLockRegistry.class).renewLock("7");
                lock.unlock();
                context.getBean(LockRegistry.class).obtain("left").lock();
                assertFalse(server.isFree("orders:left"));
            }
            assertTrue(server.isFree("orders:left"), "the end of the application releases what it holds");
            assertThrows(IllegalStateException.class, client.lock("after")::lock);
        }
    }

    @Test
    void beans_of_the_application_come_first() {
        try (TestServer server = TestServer.start(); DLockClient own = server.client()) {
            WithOwnClient.client = own;
            try (ConfigurableApplicationContext context = run(WithOwnClient.class)) {
                assertSame(own, context.getBean(DLockClient.class));
                assertEquals(1, context.getBeansOfType(LockRegistry.class).size());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(classes = {Application.class, WithOwnRegistry.class, WithOwnMeters.class})
    void an_application_with_a_meter_registry_has_meters(Class<?> application) throws Exception {
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext context = run(application, "--dlock.url=" + server.url())) {
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertEquals(0, registry.get("dlock.losses").counter().count());
            context.getBean(DLockClient.class).lock("metered").acquire().release();
            assertEquals(1, registry.get("dlock.waits").tag("outcome", "granted").timer().count());
            assertEquals(1, registry.get("dlock.holds").tag("outcome", "released").timer().count());
            if (application == WithOwnMeters.class) {
                assertEquals(1, registry.get("dlock.holds").tag("client", "orders").timer().count());
                assertEquals(List.of("metered"), WithOwnMeters.HELD);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(classes = {WithTwoClients.class, WithTwoClientsAndOwnRegistry.class})
    void an_application_may_have_two_clients(Class<?> application) throws Exception {
        try (TestServer server = TestServer.start()) {
            TwoClients.server = server;
            try (ConfigurableApplicationContext context = run(application)) {
                context.getBean("orders", DLockClient.class).lock("order").acquire().release();
                MeterRegistry registry = context.getBean(MeterRegistry.class);
                assertEquals(1, registry.get("dlock.holds").tag("client", "orders").timer().count());
                assertEquals(0, registry.get("dlock.losses").tag("client", "bills").counter().count());
                assertEquals(2, registry.get("dlock.waits.active").gauges().size());
                assertEquals(0, context.getBeansOfType(LockRegistry.class).size(), "two clients, no lock registry");
            }
        }
    }

    @Test
    void an_application_without_a_meter_registry_has_locks() throws Exception {
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext context = run(WithoutRegistry.class, "--dlock.url=" + server.url())) {
            context.getBean(DLockClient.class).lock("plain").acquire().release();
        }
    }

    @Test
    void an_application_without_its_server_does_not_start() {
        Throwable thrown = assertThrows(RuntimeException.class,
                () -> run(Application.class, "--dlock.url=redis://127.0.0.1:1", "--dlock.timeout=500ms"));
        while (thrown != null && !(thrown instanceof UnavailableException)) {
            thrown = thrown.getCause();
        }
        assertTrue(thrown != null && thrown.getMessage().contains("127.0.0.1:1"), String.valueOf(thrown));
    }
}
