package dlock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** How many replicas must acknowledge a grant and a renewal, and in which time. */
final class Replicas {
    final int count;
    final long millis;

    Replicas(int count, Duration timeout) {
        this(count, timeout.toMillis());
        if (count < 1 || millis < 1) {
            throw new IllegalArgumentException(
                    "replicas must be 1 or more, with a time of 1 ms or more, not " + count + " with " + timeout);
        }
    }

    private Replicas(int count, long millis) {
        this.count = count;
        this.millis = millis;
    }

    /** Returns the same number of replicas, with a shorter time. */
    Replicas within(long shorter) {
        return new Replicas(count, shorter);
    }

    /**
     * Waits until the replicas have what was sent on this connection before, or until the time is over. Completes with
     * the number of replicas that have it.
     */
    CompletableFuture<Long> acknowledged(DedicatedConnection at) {
        return at.ask(Words.command("WAIT", count, millis), millis).thenApply(Words::number);
    }

    /** Returns this value, unless too few replicas have acknowledged it. */
    <T> T confirmed(List<String> names, T value, long acknowledged) {
        if (acknowledged < count) {
            throw tooFew(names, acknowledged);
        }
        return value;
    }

    TooFewReplicasException tooFew(List<String> names, long acknowledged) {
        return new TooFewReplicasException(acknowledged + " of " + count + " replicas acknowledged "
                + String.join(" ", names) + " within " + millis + " ms", acknowledged);
    }
}
