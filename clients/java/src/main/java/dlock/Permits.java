package dlock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The permits of all semaphores that the client's threads hold. */
final class Permits {
    private static final class Acquired {
        final Hold hold;
        final Thread by;

        Acquired(Hold hold, Thread by) {
            this.hold = hold;
            this.by = by;
        }
    }

    /** The acquisitions by the name of the semaphore, oldest first. */
    private final Map<String, List<Acquired>> all = new HashMap<>();

    synchronized void add(String name, Hold hold) {
        all.computeIfAbsent(name, key -> new ArrayList<>()).add(new Acquired(hold, Thread.currentThread()));
    }

    /** Returns the last acquisition of the thread, or {@code null}. */
    synchronized Hold lastOf(String name, Thread thread) {
        Hold last = null;
        for (Acquired acquired : all.getOrDefault(name, List.of())) {
            last = acquired.by == thread ? acquired.hold : last;
        }
        return last;
    }

    /** Releases permits, newest first: those of the current thread, then those of other threads. */
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

    /** Releases permits of one thread, or of any if it is {@code null}. Returns the number that is left to release. */
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
