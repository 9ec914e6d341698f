package dlock.spring;

import dlock.DLock;
import dlock.DLockClient;
import java.time.Duration;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * A lock registry of Spring Integration whose locks are in a server with dlock. Its locks are those of {@link
 * DLockClient#lock(String)}: reentrant, first come, first served, and renewed by the client as its lease says. So nothing
 * has to be renewed by hand, and no lock expires while its program works.
 *
 * <pre>{@code
 * @Bean
 * DLockRegistry lockRegistry(DLockClient client) {
 *     return new DLockRegistry(client, "orders:");
 * }
 * }</pre>
 *
 * <p>It runs with Spring Integration 6 and 7, which Spring Boot 3 and 4 have.
 */
@SuppressWarnings("rawtypes")
public final class DLockRegistry implements RenewableLockRegistry {
    private final DLockClient client;
    private final String prefix;

    /** Makes a registry whose keys begin with {@code prefix}. */
    public DLockRegistry(DLockClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    /** Returns the lock of this key, which is a {@link DLock} under the prefix and the key's text. */
    @Override
    public Lock obtain(Object lockKey) {
        return lock(lockKey);
    }

    /** Returns the lock of this key as a {@link DLock}, which has more methods than {@link Lock}. */
    public DLock lock(Object lockKey) {
        return client.lock(prefix + lockKey);
    }

    /**
     * Checks the lock that the current thread holds. The client renews it by itself.
     *
     * @throws IllegalStateException the lock was lost
     * @throws IllegalMonitorStateException the thread has not locked it
     */
    @Override
    public void renewLock(Object lockKey) {
        if (!lock(lockKey).hold().check()) {
            throw new IllegalStateException("the lock of " + lockKey + " was lost");
        }
    }

    /** Sets the lease of the lock that the current thread holds, as {@link dlock.Hold#extend} does. */
    public void renewLock(Object lockKey, Duration lease) {
        lock(lockKey).hold().extend(lease);
    }
}
