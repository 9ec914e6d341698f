package dlock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The permits that a client's threads have acquired and not released, of all semaphores. */
final class Permits {
    private static final class Acquired {
        final Hold hold;
        final Thread by;

        Acquired(Hold hold, Thread by) {
            this.hold = hold;
            this.by = by;
        }
    }

    /** By the semaphore's name, the oldest first. */
    private final Map<String, List<Acquired>> all = new HashMap<>();

    synchronized void add(String name, Hold hold) {
        all.computeIfAbsent(name, key -> new ArrayList<>()).add(new Acquired(hold, Thread.currentThread()));
    }

    /** What that thread acquired last, or {@code null}. */
    synchronized Hold lastOf(String name, Thread thread) {
        Hold last = null;
        for (Acquired acquired : all.getOrDefault(name, List.of())) {
            last = acquired.by == thread ? acquired.hold : last;
        }
        return last;
    }

    /** Releases permits: first what the current thread acquired last, then what others did. */
    synchronized List<CompletableFuture<Boolean>> release(String name, long permits) {
        List<Acquired> acquired = all.getOrDefault(name, List.of());
        long there = acquired.stream().mapToLong(each -> each.hold.permits()).sum();
        if (there < permits) {
            throw new IllegalStateException(
                    "only " + there + " permits of " + name + " were acquired here and not released");
        }
        List<CompletableFuture<Boolean>> released = new ArrayList<>();
        long left = release(acquired, permits, Thread.currentThread(), released);
        release(acquired, left, null, released);
        if (acquired.isEmpty()) {
            all.remove(name);
        }
        return released;
    }

    /** Releases what that thread acquired; {@code null}: whoever did. Returns how many are still to be released. */
    private static long release(
            List<Acquired> acquired, long permits, Thread by, List<CompletableFuture<Boolean>> released) {
        long left = permits;
        for (int i = acquired.size() - 1; i >= 0 && left > 0; i--) {
            Hold hold = acquired.get(i).hold;
            if (by != null && acquired.get(i).by != by) {
                continue;
            }
            long some = Math.min(left, hold.permits());
            if (some == hold.permits()) {
                acquired.remove(i);
                released.add(hold.releaseAsync());
            } else {
                released.add(hold.releasePermits(some));
            }
            left -= some;
        }
        return left;
    }
}
