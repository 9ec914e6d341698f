package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;

/** Settings that would have no effect are refused, before anything is sent. */
final class OptionsTest {
    private static final Driver DRIVER = words -> {
        throw new AssertionError("the driver is called");
    };

    @Test
    void settings_that_contradict_each_other_are_refused() throws NoSuchAlgorithmException {
        SSLContext context = SSLContext.getDefault();
        Map<String, Consumer<DLockClient.Builder>> wrong = new LinkedHashMap<>();
        wrong.put("a driver and a URL", builder -> builder.driver(DRIVER).url("redis://127.0.0.1:1/6"));
        wrong.put("a driver and a login", builder -> builder.driver(DRIVER).credentials("user", "password"));
        wrong.put("a driver and a login for Sentinels", builder -> builder.driver(DRIVER).sentinelCredentials("user", "password"));
        wrong.put("a driver and TLS", builder -> builder.driver(DRIVER).sslContext(context));
        wrong.put("a TLS context and a URL without TLS", builder -> builder.url("redis://127.0.0.1:1").sslContext(context));
        wrong.put("a login for Sentinels and a URL without Sentinels",
                builder -> builder.url("redis://127.0.0.1:1").sentinelCredentials("user", "password"));
        wrong.put("the longest wait of a driver and no driver",
                builder -> builder.url("redis://127.0.0.1:1").longestWait(Duration.ofSeconds(3)));
        wrong.forEach((what, settings) -> {
            DLockClient.Builder builder = DLockClient.builder();
            settings.accept(builder);
            assertThrows(IllegalArgumentException.class, builder::connect, what);
        });
        DLockClient.builder().driver(DRIVER).longestWait(Duration.ofSeconds(3)).owner("label").connect().close();
    }

    /** A hold of a session is certain for as long as the session, while it is bound, and not beyond its cap. */
    @Test
    void a_binding_is_certain_until_it_ends_or_its_cap() {
        Binding binding = new Binding();
        assertEquals(100, binding.until(100));
        binding.unbind(100);
        binding.unbind(150);
        assertEquals(100, binding.until(200));
        assertTrue(binding.hasEnded(100) && !binding.hasEnded(99));
        binding.bind(100);
        assertEquals(100, binding.until(200));
        binding.bind(99);
        assertEquals(200, binding.until(200));
        assertFalse(binding.hasEnded(100));
        binding.capNotBefore(120);
        assertEquals(120, binding.until(200));
        assertTrue(binding.needsCap(120) && !binding.needsCap(119) && binding.isCapped(120));
        binding.capIs(false, 0);
        assertEquals(200, binding.until(200));
        assertFalse(binding.needsCap(1000) || binding.isCapped(1000));
        binding.capIs(true, 150);
        binding.unbind(180);
        assertEquals(150, binding.until(200));
        assertTrue(binding.isCapped(150) && !binding.needsCap(150));
    }

    @Test
    void a_lease_of_which_nothing_would_be_certain_is_refused() {
        Duration two = Duration.ofMillis(2);
        assertThrows(IllegalArgumentException.class, () -> Lease.fixed(two));
        assertThrows(IllegalArgumentException.class, () -> Lease.renewed(two));
        assertThrows(IllegalArgumentException.class, () -> HoldTime.ANY.atMost(two));
        Lease.fixed(Duration.ofMillis(3));
    }
}
