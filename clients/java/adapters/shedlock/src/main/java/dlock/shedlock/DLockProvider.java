package dlock.shedlock;

import dlock.DLock;
import dlock.DLockClient;
import dlock.Hold;
import dlock.Lease;
import dlock.LockLostException;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * Locks of ShedLock in a server with dlock. A task that is locked elsewhere is skipped, as ShedLock does it; if no server
 * answers, {@link dlock.UnavailableException} is thrown, and the task does not run.
 *
 * <p>{@code lockAtMostFor} is the lease, which nobody renews; {@code lockAtLeastFor} is kept by the server, even if the
 * program dies. Both count by the server's clock. A lock can be extended, so ShedLock's {@code KeepAliveLockProvider}
 * may wrap this provider.
 */
public final class DLockProvider implements ExtensibleLockProvider {
    private final DLockClient client;
    private final String prefix;

    /** Names of locks are keys that begin with {@code job-lock:}. */
    public DLockProvider(DLockClient client) {
        this(client, "job-lock:");
    }

    public DLockProvider(DLockClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Duration most = configuration.getLockAtMostFor();
        Duration least = configuration.getLockAtLeastFor();
        if (most.toMillis() < 1) {
            return Optional.empty();
        }
        DLock lock = client.lock(prefix + configuration.getName()).withLease(Lease.fixed(most)).withAtLeast(least);
        try {
            return lock.tryAcquire(Duration.ZERO).map(Held::new);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private static final class Held implements SimpleLock {
        private final Hold hold;
        private boolean isUsed;

        Held(Hold hold) {
            this.hold = hold;
        }

        @Override
        public void unlock() {
            use();
            hold.close();
        }

        /** Sets the lease. {@code lockAtLeastFor} is ignored: the one of the first request stays. */
        @Override
        public Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
            use();
            try {
                hold.extend(lockAtMostFor);
                return Optional.of(new Held(hold));
            } catch (LockLostException e) {
                return Optional.empty();
            }
        }

        private void use() {
            if (isUsed) {
                throw new IllegalStateException("the lock was unlocked or extended before");
            }
            isUsed = true;
        }
    }
}
