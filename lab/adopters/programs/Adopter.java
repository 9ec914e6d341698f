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

/** A program that uses the Java package as its README says (../README.md): java Adopter ROLE NAME */
final class Adopter {
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final CountDownLatch STOPPING = new CountDownLatch(1);
    private static final Path LEDGER = Path.of(System.getenv("ADOPTER_LEDGER"));
    private static final int REPLICAS = Integer.parseInt(System.getenv("ADOPTER_REPLICAS"));
    private static String name;
    private static DLockClient client;

    private Adopter() {}

    /** The work has stopped, because its lock is lost. */
    private static final class Abandoned extends RuntimeException {}

    /** A task of a role. */
    private interface Task {
        void run() throws Exception;
    }

    /** An acquisition, whose events are written for the run that judges them (../README.md). */
    private static final class Visit {
        final int number = NUMBERS.incrementAndGet();
        private final AtomicBoolean lost = new AtomicBoolean();

        Visit(String lock, long lease, long wait, String more) {
            tell("asking", micros(), "\"lock\": \"" + lock + "\", \"lease\": " + lease + ", \"wait\": " + wait + more);
        }

        void tell(String event, long before, String fields) {
            // The stream writes a line in one piece.
            System.out.println("{\"event\": \"" + event + "\", \"id\": " + number + ", \"at\": [" + before + ", " + micros()
                    + "]" + (fields.isEmpty() ? "" : ", " + fields) + "}");
        }

        void ends(String event, String fields) {
            tell(event, micros(), fields);
        }

        void enters(Hold hold, String more) {
            hold.onLost(loss -> lost.set(true));
            holds("inside", hold, ", \"token\": " + hold.fencingToken() + more);
        }

        /** Tells what the hold says of itself, and returns whether it is held. */
        boolean holds(String event, Hold hold, String more) {
            long before = micros();
            double remaining = hold.remaining().toNanos() / 1e6;
            boolean isLost = lost.get();
            tell(event, before, "\"remaining\": " + remaining + ", \"lost\": " + isLost + more);
            return remaining > 0 && !isLost;
        }

        /** Works for a while, with a look at the lock every 100 ms. */
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

    /** A web handler: pays an order, which other programs may be asked to pay at the same time. */
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
     * Pays once. The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such rows
     * out.
     */
    private static void charge(Visit visit, Hold hold, Path order) throws IOException, InterruptedException {
        append(order, "begin " + hold.fencingToken());
        if (Files.readString(order).contains("paid ")) {
            return;
        }
        Thread.sleep(between(20, 150)); // The provider is called.
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

    /** A job for one of three GPUs, whose number nobody else has. */
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

    /** A candidate, which leads until its term ends or it resigns. */
    private static void stand() throws InterruptedException {
        Candidate candidate = new Candidate();
        try (Election election = client.elect(replicated(client.lock("leader")), candidate::started, candidate::stopped)) {
            candidate.leads();
        }
        candidate.ended();
        STOPPING.await(100, TimeUnit.MILLISECONDS);
    }

    /** The link between the two listeners of an election and the thread that leads. */
    private static final class Candidate {
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

        /** Leads, until a term has lasted long enough. */
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

        synchronized void ended() {
            if (visit != null) {
                visit.ends("canceled", "");
            }
        }
    }

    /** A job that each machine's scheduler starts, once a period. */
    private static void report() throws InterruptedException {
        long period = 4000;
        if (STOPPING.await(period - System.currentTimeMillis() % period + between(0, 30), TimeUnit.MILLISECONDS)) {
            return;
        }
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

    /** Connects. Tries again while no server answers, as a supervisor that restarts the program would. */
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

    /** Reads the input, which stays empty, until it closes. */
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
