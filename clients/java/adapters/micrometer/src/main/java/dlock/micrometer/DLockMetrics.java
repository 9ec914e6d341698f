package dlock.micrometer;

import dlock.LockListener;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;

/**
 * Meters of the locks of a client:
 *
 * <ul>
 *   <li>{@code dlock.waits}: a timer of requests, with the tag {@code outcome}: {@code granted}, {@code refused}, {@code
 *       failed} or {@code canceled};
 *   <li>{@code dlock.holds}: a timer of holds that are over, with the tag {@code outcome}: {@code released} or {@code lost};
 *   <li>{@code dlock.losses}: a counter of holds that were lost;
 *   <li>{@code dlock.waits.active} and {@code dlock.holds.active}: gauges of the present requests and holds.
 * </ul>
 *
 * <pre>{@code
 * DLockMetrics metrics = new DLockMetrics();
 * metrics.bindTo(registry);
 * DLockClient client = DLockClient.builder().listener(metrics).connect();
 * }</pre>
 *
 * <p>An object may be bound to several registries, before or after the client is made. Give each client its own object,
 * with a tag that tells the clients apart.
 */
public final class DLockMetrics implements MeterBinder, LockListener {
    private final Tags tags;
    /** Makes tags of the names of locks. {@code null}: there are no such tags. */
    private final Function<? super List<String>, ? extends Iterable<Tag>> tagsOfNames;
    private final List<MeterRegistry> registries = new CopyOnWriteArrayList<>();
    private final LongAdder waiting = new LongAdder();
    private final LongAdder holding = new LongAdder();

    /** Makes meters without tags of their own. */
    public DLockMetrics() {
        this(Tags.empty());
    }

    /** Makes meters with these tags. */
    public DLockMetrics(Iterable<Tag> tags) {
        this.tags = Tags.of(tags);
        this.tagsOfNames = null;
    }

    /**
     * Makes meters that also have tags by the names of the locks, except the gauges. A registry keeps each combination of
     * tags forever, so the function must map many names to few tags, and always use the same keys: {@code names ->
     * Tags.of("kind", names.get(0).split(":")[0])}.
     */
    public DLockMetrics(Iterable<Tag> tags, Function<? super List<String>, ? extends Iterable<Tag>> tagsOfNames) {
        this.tags = Tags.of(tags);
        this.tagsOfNames = Objects.requireNonNull(tagsOfNames);
    }

    /** Adds the meters to this registry. Does nothing if the registry has them already. */
    @Override
    public synchronized void bindTo(MeterRegistry registry) {
        if (registries.stream().anyMatch(bound -> bound == registry)) {
            return;
        }
        Gauge.builder("dlock.waits.active", waiting, LongAdder::sum).tags(tags)
                .description("Requests for locks that wait now").register(registry);
        Gauge.builder("dlock.holds.active", holding, LongAdder::sum).tags(tags)
                .description("Locks that are held now").register(registry);
        if (tagsOfNames == null) {
            // Shows the counter before the first loss. With tags of names, its tags are not known yet.
            losses(registry, List.of());
        }
        registries.add(registry);
    }

    @Override
    public void requested(List<String> names) {
        waiting.increment();
    }

    @Override
    public void answered(List<String> names, Outcome outcome, Duration waited) {
        waiting.decrement();
        record("dlock.waits", "Requests for locks", names, outcome.name().toLowerCase(Locale.ROOT), waited);
    }

    @Override
    public void held(List<String> names) {
        holding.increment();
    }

    @Override
    public void released(List<String> names, Duration held) {
        ended(names, "released", held);
    }

    @Override
    public void lost(List<String> names, Duration held) {
        ended(names, "lost", held);
        registries.forEach(registry -> losses(registry, names).increment());
    }

    private void ended(List<String> names, String outcome, Duration held) {
        holding.decrement();
        record("dlock.holds", "Locks that were held", names, outcome, held);
    }

    private void record(String timer, String description, List<String> names, String outcome, Duration time) {
        registries.forEach(registry -> Timer.builder(timer).description(description).tags(tags(names))
                .tag("outcome", outcome).register(registry).record(time));
    }

    private Counter losses(MeterRegistry registry, List<String> names) {
        return Counter.builder("dlock.losses").description("Locks that were lost").tags(tags(names)).register(registry);
    }

    private Tags tags(List<String> names) {
        return tagsOfNames == null ? tags : tags.and(tagsOfNames.apply(names));
    }
}
