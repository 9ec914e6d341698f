package dlock.spring.boot;

import dlock.DLockClient;
import dlock.spring.DLockRegistry;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/**
 * A lock registry for an application with Spring Integration and one client, or one that is {@code @Primary}. A bean of
 * the application replaces it.
 */
@AutoConfiguration(after = DLockAutoConfiguration.class)
@ConditionalOnClass(name = "org.springframework.integration.support.locks.RenewableLockRegistry")
@ConditionalOnSingleCandidate(DLockClient.class)
@EnableConfigurationProperties(DLockProperties.class)
public class DLockRegistryAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean(type = "org.springframework.integration.support.locks.LockRegistry")
    DLockRegistry dlockRegistry(DLockClient client, DLockProperties settings) {
        return new DLockRegistry(client, settings.getRegistryPrefix());
    }
}
