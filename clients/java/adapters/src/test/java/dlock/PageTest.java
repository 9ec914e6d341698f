package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.jedis.JedisDriver;
import dlock.lettuce.LettuceDriver;
import dlock.micrometer.DLockMetrics;
import dlock.shedlock.DLockProvider;
import dlock.spring.DLockRegistry;
import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.http.HttpStatus;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.UnifiedJedis;

/** The programs of the page of the adapters, in the frameworks themselves. */
final class PageTest {
    private static TestServer server;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    static String url() {
        return server.url();
    }

    private static String textOf(List<String> lines) {
        return lines.stream().map(String::strip).filter(line -> !line.isEmpty()).collect(Collectors.joining("\n"));
    }

    @Test
    void each_program_of_the_page_is_in_this_file() throws IOException {
        String here = textOf(Files.readAllLines(Path.of(TestServer.env("DLOCK_PAGE_TEST"))));
        String page = Files.readString(Path.of(TestServer.env("DLOCK_PAGE")));
        List<String> programs = Pattern.compile("(?ms)^```java\n(.*?)^```$").matcher(page).results()
                .map((MatchResult found) -> found.group(1)).collect(Collectors.toList());
        assertEquals(7, programs.size());
        for (String program : programs) {
            String text = textOf(List.of(program.replace("\"redis://127.0.0.1:6379\"", "PageTest.url()").split("\n")));
            assertTrue(here.contains(text), "not in this file:\n" + program);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @Import({Reports.class, Nightly.class, Scheduling.class, Cleaning.class, Often.class})
    static class Application {}

    /** A task that runs all the time. */
    @Component
    static class Often {
        private static final AtomicInteger INSIDE = new AtomicInteger();
        private static final AtomicInteger RUNS = new AtomicInteger();
        private static volatile boolean wasTogether;

        @Scheduled(fixedDelay = 10)
        @SchedulerLock(name = "often")
        public void run() throws InterruptedException {
            wasTogether |= INSIDE.incrementAndGet() > 1;
            Thread.sleep(5);
            INSIDE.decrementAndGet();
            RUNS.incrementAndGet();
        }
    }

    private static ConfigurableApplicationContext application() {
        SpringApplication boot = new SpringApplication(Application.class);
        boot.setRegisterShutdownHook(false);
        return boot.run("--server.port=0", "--dlock.url=" + server.url());
    }

    private static HttpResponse<String> post(ConfigurableApplicationContext context, String path) throws Exception {
        String port = context.getEnvironment().getProperty("local.server.port");
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
                .POST(HttpRequest.BodyPublishers.noBody()).build(), HttpResponse.BodyHandlers.ofString());
    }

    @Test
    void a_web_application_locks() throws Exception {
        try (ConfigurableApplicationContext context = application()) {
            HttpResponse<String> written = post(context, "/reports/7");
            assertTrue(written.body().startsWith("written with token "), written::body);
            assertTrue(server.isFree("report:7"));
            server.run("DLOCK.ACQUIRE", "report:7", "other");
            assertEquals(409, post(context, "/reports/7").statusCode());
            server.run("DLOCK.RELEASE", "report:7", "other");
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertEquals(1, registry.get("dlock.waits").tag("outcome", "refused").timer().count());
        }
    }

    @Test
    void scheduled_tasks_run_on_one_machine_at_a_time() throws Exception {
        try (ConfigurableApplicationContext here = application(); ConfigurableApplicationContext there = application()) {
            TestServer.soon("ten runs", () -> Often.RUNS.get() >= 10);
            assertFalse(Often.wasTogether);
            here.getBean(Nightly.class).report();
            assertFalse(server.isFree("nightly"));
            there.getBean(Nightly.class).report();
            assertEquals(1L, server.info("nightly").get("count"));
            here.getBean(Cleaning.class).run();
            assertTrue(server.isFree("job-lock:cleaning"));
        }
        server.run("DEL", "nightly");
    }

    @Test
    void a_registry_without_boot() {
        try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(WithoutBoot.class)) {
            context.getBean(LockRegistry.class).obtain("7").lock();
            assertFalse(server.isFree("orders:7"));
        }
        assertTrue(server.isFree("orders:7"));
    }

    @Test
    void over_jedis() throws Exception {
        UnifiedJedis jedis = OtherJedis.server(server.port, 0, new ConnectionPoolConfig());
        DLockClient client = DLockClient.builder().driver(new JedisDriver(jedis)).connect();
        client.lock("over").acquire().release();
        client.close();
        jedis.close();
    }

    @Test
    void over_lettuce() throws Exception {
        RedisClient redisClient = RedisClient.create(server.url());
        LettuceDriver driver = LettuceDriver.over(redisClient);
        DLockClient client = DLockClient.builder().driver(driver).connect();
        client.lock("over").acquire().release();
        client.close();
        driver.close();
        redisClient.shutdown();
    }

    @Test
    void meters() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        DLockMetrics metrics = new DLockMetrics();
        metrics.bindTo(registry);
        DLockClient client = DLockClient.builder().url(PageTest.url()).listener(metrics).connect();
        client.lock("metered").acquire().release();
        assertEquals(1, registry.get("dlock.holds").timer().count());
        client.close();
    }
}

@RestController
class Reports {
    private final DLockClient dlock;

    Reports(DLockClient dlock) {
        this.dlock = dlock;
    }

    @PostMapping("/reports/{id}")
    String write(@PathVariable("id") String id) throws InterruptedException {
        DLock lock = dlock.lock("report:" + id);
        if (!lock.tryLock(2, TimeUnit.SECONDS)) {
            throw new ResponseStatusException(HttpStatus.CONFLICT);
        }
        try {
            return "written with token " + lock.fencingToken();
        } finally {
            lock.unlock();
        }
    }
}

@Component
class Nightly {
    private final DLockClient dlock;

    Nightly(DLockClient dlock) {
        this.dlock = dlock;
    }

    @Scheduled(cron = "0 0 3 * * *")
    public void report() throws InterruptedException {
        dlock.lock("nightly").once(Duration.ofDays(1), hold -> System.out.println("token " + hold.fencingToken()));
    }
}

@Configuration
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "10m")
class Scheduling {
    @Bean
    LockProvider lockProvider(DLockClient client) {
        return new DLockProvider(client);
    }
}

@Component
class Cleaning {
    @Scheduled(cron = "0 */5 * * * *")
    @SchedulerLock(name = "cleaning")
    public void run() {
        System.out.println("cleaning");
    }
}

@Configuration
class WithoutBoot {
    @Bean(destroyMethod = "close")
    DLockClient dlock() {
        return DLockClient.connect(PageTest.url());
    }

    @Bean
    DLockRegistry lockRegistry(DLockClient client) {
        return new DLockRegistry(client, "orders:");
    }
}
