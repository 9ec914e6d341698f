package dlock.spring.boot;

import dlock.DLockClient;
import dlock.Lease;
import dlock.LockListener;
import dlock.micrometer.DLockMetrics;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.Optional;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/**
 * A {@link DLockClient} for an application of Spring Boot, from its settings {@code dlock.*}, and with Micrometer meters.
 * A bean of the application replaces each. Beans that are a {@link LockListener} listen to the client. An application
 * whose server cannot be reached does not start.
 */
@AutoConfiguration
@EnableConfigurationProperties(DLockProperties.class)
public class DLockAutoConfiguration {
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    DLockClient dlockClient(DLockProperties settings, ObjectProvider<LockListener> listeners) {
        DLockClient.Builder builder = DLockClient.builder();
        Optional.ofNullable(settings.getUrl()).ifPresent(builder::url);
        Optional.ofNullable(settings.getOwner()).ifPresent(builder::owner);
        Optional.ofNullable(settings.getTimeout()).ifPresent(builder::timeout);
        Optional.ofNullable(settings.getPatience()).ifPresent(builder::patience);
        Optional.ofNullable(settings.getLease()).map(Lease::renewed).ifPresent(builder::lease);
        listeners.orderedStream().forEach(builder::listener);
        return builder.connect();
    }

    /** With Micrometer. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.micrometer.core.instrument.MeterRegistry")
    static class Meters {
        @Bean
        @ConditionalOnMissingBean
        DLockMetrics dlockMetrics() {
            return new DLockMetrics();
        }

        /**
         * Binds the meters to the registry if there is one, even without Actuator. If Actuator binds them as well, the
         * registry has them once. An application with several clients has several {@link DLockMetrics}.
         */
        @Bean
        SmartInitializingSingleton dlockMeters(
                ObjectProvider<DLockMetrics> metrics, ObjectProvider<MeterRegistry> registries) {
            return () -> registries.ifUnique(registry -> metrics.forEach(each -> each.bindTo(registry)));
        }
    }
}
