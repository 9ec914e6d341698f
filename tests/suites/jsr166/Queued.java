import java.util.Collection;
import java.util.function.IntSupplier;

/** The methods by which the tests ask which threads wait. `arrived`: how many of them the server has. */
abstract class Queued {
    final Waiting waiting;
    private final boolean fair;

    Queued(boolean fair, IntSupplier arrived) {
        this.fair = fair;
        waiting = new Waiting(arrived);
    }

    boolean isFair() {
        return fair;
    }

    boolean hasQueuedThreads() {
        return !waiting.all().isEmpty();
    }

    int getQueueLength() {
        return waiting.size();
    }

    protected Collection<Thread> getQueuedThreads() {
        return waiting.all();
    }
}
