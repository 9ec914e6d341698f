import dlock.DLock;
import dlock.DLockClient;
import dlock.DSemaphore;
import dlock.Election;
import dlock.Hold;
import dlock.Lease;
import dlock.UnavailableException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/** Uses the Java package as its README says: java Adopter ROLE NAME. lab/adopters/README.md has the roles. */
final class Adopter {
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final CountDownLatch STOPPING = new CountDownLatch(1);
    private static final Path LEDGER = Path.of(System.getenv("ADOPTER_LEDGER"));
    private static final int REPLICAS = Integer.parseInt(System.getenv("ADOPTER_REPLICAS"));
    private static String name;
    private static DLockClient client;

    private Adopter() {}

    /** Thrown by work that stops because its lock is lost. */
    private static final class Abandoned extends RuntimeException {}

    /** The work of a role. A worker runs it again and again. */
    private interface Task {
        void run() throws Exception;
    }

    /** An acquisition. Its events are written to the standard output, for `run.py`, which judges them. */
    private static final class Visit {
        final int number = NUMBERS.incrementAndGet();
        private final AtomicBoolean lost = new AtomicBoolean();

        Visit(String lock, long lease, long wait, String more) {
            tell("asking", micros(), "\"lock\": \"" + lock + "\", \"lease\": " + lease + ", \"wait\": " + wait + more);
        }

        /** Writes an event that was observed between `before` and now. */
        void tell(String event, long before, String fields) {
            // The threads share the stream, which writes a line in one piece.
            System.out.println("{\"event\": \"" + event + "\", \"id\": " + number + ", \"at\": [" + before + ", " + micros()
                    + "]" + (fields.isEmpty() ? "" : ", " + fields) + "}");
        }

        /** Writes the last event. */
        void ends(String event, String fields) {
            tell(event, micros(), fields);
        }

        void enters(Hold hold, String more) {
            hold.onLost(loss -> lost.set(true));
            holds("inside", hold, ", \"token\": " + hold.fencingToken() + more);
        }

        /** Writes what the package says of the hold, and returns whether the lock is held. */
        boolean holds(String event, Hold hold, String more) {
            long before = micros();
            double remaining = hold.remaining().toNanos() / 1e6;
            boolean isLost = lost.get();
            tell(event, before, "\"remaining\": " + remaining + ", \"lost\": " + isLost + more);
            return remaining > 0 && !isLost;
        }

        /** Works for this time, and looks at the lock every 100 ms. Stops if the lock is lost. */
        void works(Hold hold, long milliseconds) throws InterruptedException {
            long ends = System.nanoTime() + milliseconds * 1_000_000;
            for (long left; (left = ends - System.nanoTime()) > 0; ) {
                TimeUnit.NANOSECONDS.sleep(Math.min(left, 100_000_000));
                if (!holds("still", hold, "")) {
                    throw new Abandoned();
                }
            }
        }

        void failed(Exception e) {
            String type = e instanceof Abandoned ? "abandoned" : e.getClass().getSimpleName();
            String message = String.valueOf(e.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", "'");
            ends("error", "\"type\": \"" + type + "\", \"message\": \"" + message + "\"");
        }
    }

    /**
     * A web handler: pays an order, which other programs may be asked to pay at the same time. There is an order for
     * each half second, and it may be up to two half seconds old.
     */
    private static void pay() throws InterruptedException {
        STOPPING.await(between(50, 250), TimeUnit.MILLISECONDS);
        long order = System.currentTimeMillis() / 500 - between(0, 3);
        Visit visit = new Visit("pay:" + order, 3000, 1000, "");
        DLock lock = replicated(client.lock("pay:" + order).withLease(Lease.fixed(Duration.ofSeconds(3))));
        try {
            if (!lock.tryLock(1, TimeUnit.SECONDS)) {
                visit.ends("refused", "");
                return;
            }
            Hold hold = lock.hold();
            try {
                visit.enters(hold, "");
                charge(visit, hold, LEDGER.resolve("" + order));
            } finally {
                visit.holds("leaving", hold, "");
                lock.unlock();
            }
            visit.ends("left", "");
        } catch (Exception e) {
            visit.failed(e);
        }
    }

    /**
     * Pays an order unless it is paid. The file plays a database. A real one refuses a row whose token is lower than
     * one that it has; the file keeps such a row, and ../rules.py leaves it out.
     */
    private static void charge(Visit visit, Hold hold, Path order) throws IOException, InterruptedException {
        append(order, "begin " + hold.fencingToken());
        if (Files.readString(order).contains("paid ")) {
            return;
        }
        Thread.sleep(between(20, 150)); // The time of the call to the payment provider.
        if (visit.holds("still", hold, "")) {
            append(order, "paid " + hold.fencingToken());
        }
    }

    private static void append(Path order, String row) throws IOException {
        Files.writeString(order, row + " " + name + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** A worker of a pool: jobs of one customer run one at a time. */
    private static void serve() {
        String customer = "customer:" + between(0, 4);
        Visit visit = new Visit(customer, 2000, 2000, "");
        try {
            Optional<Hold> granted = replicated(client.lock(customer)).tryAcquire(Duration.ofSeconds(2));
            inside(visit, granted, false, between(1, 7) * between(50, 400));
        } catch (Exception e) {
            visit.failed(e);
        }
    }

    /** A job on one of three GPUs. The number of the permit is that of the GPU, which no other job has. */
    private static void compute() {
        Visit visit = new Visit("gpu", 2000, 2000, ", \"limit\": 3");
        DSemaphore gpus = client.semaphore("gpu", 3).withSlots();
        gpus = REPLICAS > 0 ? gpus.withReplicas(REPLICAS, Duration.ofSeconds(1)) : gpus;
        try {
            inside(visit, gpus.tryAcquireHold(1, Duration.ofSeconds(2)), true, between(100, 1500));
        } catch (Exception e) {
            visit.failed(e);
        }
    }

    /** Does the work of an acquisition, and releases the lock. */
    private static void inside(Visit visit, Optional<Hold> granted, boolean numbered, long work) throws Exception {
        if (granted.isEmpty()) {
            visit.ends("refused", "");
            return;
        }
        try (Hold hold = granted.get()) {
            visit.enters(hold, numbered ? ", \"slot\": " + hold.slot() : "");
            try {
                visit.works(hold, work);
            } finally {
                visit.holds("leaving", hold, "");
            }
        }
        visit.ends("left", "");
    }

    /** Stands in an election until a term has ended, by a loss or by resigning, or the program stops. */
    private static void stand() throws InterruptedException {
        Candidate candidate = new Candidate();
        try (Election election = client.elect(replicated(client.lock("leader")), candidate::started, candidate::stopped)) {
            candidate.leads();
        }
        candidate.ended();
        STOPPING.await(100, TimeUnit.MILLISECONDS);
    }

    /** Connects the two listeners of an election with the thread that leads. */
    private static final class Candidate {
        /** The acquisition that waits or leads; null after a term that ends by resigning. */
        private Visit visit = new Visit("leader", 2000, -1, "");
        private Hold term;
        private boolean resigns;

        synchronized void started(Hold hold) {
            visit.enters(hold, "");
            term = hold;
            notifyAll();
        }

        synchronized void stopped(Hold hold) {
            visit.holds("leaving", hold, "");
            visit.ends("left", "\"lost\": " + !hold.isHeld());
            term = null;
            visit = resigns ? null : new Visit("leader", 2000, -1, "");
        }

        /** Waits for a term, and leads until the term is lost, has lasted for 1 to 6 s, or the program stops. */
        synchronized void leads() throws InterruptedException {
            long ends = 0;
            Hold led = null;
            while (STOPPING.getCount() > 0 && (led == null || led != term || System.nanoTime() < ends)) {
                if (term != led) {
                    led = term;
                    ends = System.nanoTime() + between(1000, 6000) * 1_000_000L;
                }
                if (led != null) {
                    visit.holds("still", led, "");
                }
                wait(100);
            }
            resigns = true;
        }

        /** Tells that the last acquisition was canceled, unless its term has ended by resigning. */
        synchronized void ended() {
            if (visit != null) {
                visit.ends("canceled", "");
            }
        }
    }

    /** A job that the scheduler of each machine starts once in each period. */
    private static void report() throws InterruptedException {
        long period = 4000;
        // Schedulers start the job up to 30 ms late.
        if (STOPPING.await(period - System.currentTimeMillis() % period + between(0, 30), TimeUnit.MILLISECONDS)) {
            return;
        }
        // The event's `lease` is how long the lock stays: nine tenths of the period.
        Visit visit = new Visit("report", 3600, 0, "");
        try {
            boolean ran = replicated(client.lock("report")).once(Duration.ofMillis(period), hold -> {
                visit.enters(hold, "");
                try {
                    visit.works(hold, between(100, 500));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                } finally {
                    visit.holds("leaving", hold, "");
                }
            });
            visit.ends(ran ? "left" : "refused", ran ? "\"kept\": true" : "");
        } catch (Exception e) {
            visit.failed(e);
        }
    }

    private static DLock replicated(DLock lock) {
        return REPLICAS > 0 ? lock.withReplicas(REPLICAS, Duration.ofSeconds(1)) : lock;
    }

    /** Returns a number from `least` to `most` - 1. */
    private static long between(int least, int most) {
        return ThreadLocalRandom.current().nextInt(least, most);
    }

    private static long micros() {
        return System.nanoTime() / 1000;
    }

    /** Connects. Tries again while no server answers, as a supervisor does that restarts the program. */
    private static DLockClient connect() throws InterruptedException {
        while (true) {
            try {
                return connected();
            } catch (UnavailableException e) {
                if (STOPPING.await(200, TimeUnit.MILLISECONDS)) {
                    System.exit(0);
                }
            }
        }
    }

    private static DLockClient connected() {
        String servers = Arrays.stream(System.getenv("ADOPTER_PORTS").split(","))
                .map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
        boolean isSentinel = System.getenv("ADOPTER_BY").equals("sentinel");
        return DLockClient.builder()
                .url(isSentinel ? "redis-sentinel://" + servers + "/locks" : "redis://" + servers)
                .lease(Lease.renewed(Duration.ofSeconds(2)))
                .connect();
    }

    /** Reads the input, which stays empty, until it closes. Then the program stops. */
    private static void read() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException e) {
            // The input has closed.
        }
        STOPPING.countDown();
    }

    private static Task task(String role) {
        switch (role) {
            case "web":
                return Adopter::pay;
            case "pool":
                return Adopter::serve;
            case "election":
                return Adopter::stand;
            case "slots":
                return Adopter::compute;
            default:
                return Adopter::report;
        }
    }

    public static void main(String[] arguments) throws Exception {
        name = arguments[1];
        Task task = task(arguments[0]);
        int workers = arguments[0].equals("web") || arguments[0].equals("pool") ? 2 : 1;
        Thread input = new Thread(Adopter::read);
        input.setDaemon(true);
        input.start();
        client = connect();
        Thread[] threads = new Thread[workers];
        for (int at = 0; at < workers; at++) {
            threads[at] = new Thread(() -> {
                try {
                    while (STOPPING.getCount() > 0) {
                        task.run();
                        STOPPING.await(50, TimeUnit.MILLISECONDS);
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            threads[at].start();
        }
        STOPPING.await();
        for (Thread thread : threads) {
            thread.join();
        }
        client.close();
    }
}
