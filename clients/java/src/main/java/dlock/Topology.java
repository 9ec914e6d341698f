package dlock;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.Function;

/** Maps keys to servers, and learns from errors. */
abstract class Topology {
    /** The server for a command. */
    static final class Route {
        final Node node;
        /** Whether {@code ASKING} must precede the command, because the slot is being imported. */
        final boolean asking;

        Route(Node node, boolean asking) {
            this.node = node;
            this.asking = asking;
        }
    }

    abstract CompletableFuture<Route> route(String key);

    /** Learns from the failure of a command. */
    abstract void note(String key, Throwable failure);

    /** Returns whether one command may have both keys. */
    boolean together(String one, String other) {
        return true;
    }

    /** Tries the addresses in turn. Returns the first success, or the last failure. */
    static <T> CompletableFuture<T> firstOf(List<Address> addresses, Function<Address, CompletableFuture<T>> attempt) {
        CompletableFuture<T> result = attempt.apply(addresses.get(0));
        for (Address next : addresses.subList(1, addresses.size())) {
            result = result.thenApply(CompletableFuture::completedFuture)
                    .exceptionally(failed -> attempt.apply(next))
                    .thenCompose(outcome -> outcome);
        }
        return result;
    }

    private static String code(Throwable failure) {
        return failure instanceof ServerException ? ((ServerException) failure).code() : "";
    }

    /** A single server. */
    static final class Single extends Topology {
        private final Node node;

        Single(Node node) {
            this.node = node;
        }

        @Override
        CompletableFuture<Route> route(String key) {
            return CompletableFuture.completedFuture(new Route(node, false));
        }

        @Override
        void note(String key, Throwable failure) {
            if (ServerException.isOfReplica(failure)) {
                // The host name may refer to another server now.
                node.reset();
            }
        }
    }

    /** The primary that Sentinels monitor under a name. */
    static final class Sentinels extends Topology {
        private final Servers servers;
        private final List<Address> sentinels;
        private final byte[][] question;
        private final String name;
        /** The primary that was found, or the search for it. {@code null}: the next command begins a search. */
        private CompletableFuture<Route> current;

        Sentinels(Servers servers, List<Address> sentinels, String name) {
            this.servers = servers;
            this.sentinels = sentinels;
            this.name = name;
            question = Words.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name);
        }

        @Override
        synchronized CompletableFuture<Route> route(String key) {
            if (current == null || current.isCompletedExceptionally()) {
                current = firstOf(sentinels, this::ask).thenCompose(this::verified);
            }
            return current;
        }

        private CompletableFuture<Address> ask(Address sentinel) {
            return servers.askSentinel(sentinel, question).thenApply(reply -> {
                List<?> hostAndPort = reply instanceof List ? (List<?>) reply : List.of();
                if (hostAndPort.size() != 2) {
                    throw new Unanswered("Sentinel " + sentinel + " knows no primary named " + name, null);
                }
                return new Address(
                        Words.text(hostAndPort.get(0)), Words.number(hostAndPort.get(1)).intValue());
            });
        }

        /** Checks the role, because Sentinel may not have noticed a failover yet. */
        private CompletableFuture<Route> verified(Address address) {
            Node node = servers.node(address);
            return node.shared().thenApply(connection -> {
                if (!connection.role().equals("master")) {
                    node.reset();
                    throw new Unanswered(address + " is not a primary", null);
                }
                return new Route(node, false);
            });
        }

        @Override
        void note(String key, Throwable failure) {
            if (!Unanswered.mayRepeat(failure)) {
                return;
            }
            CompletableFuture<Route> before;
            synchronized (this) {
                before = current;
                // A search that has not ended goes on.
                if (before != null && before.isDone()) {
                    current = null;
                }
            }
            if (before != null && ServerException.isOfReplica(failure)) {
                before.thenAccept(route -> route.node.reset());
            }
        }
    }

    /** The nodes of a cluster. */
    static final class Cluster extends Topology {
        private static final int SLOTS = 16384;

        private final Servers servers;
        private final List<Address> seeds;
        private final AtomicReferenceArray<Address> owners = new AtomicReferenceArray<>(SLOTS);
        /** By slot, the node that imports the slot: the answer ASK sends the next command there. */
        private final Map<Integer, Address> asked = new ConcurrentHashMap<>();
        private CompletableFuture<Void> learning;
        /** Whether the owners have to be learned before the next command. */
        private boolean stale = true;

        Cluster(Servers servers, List<Address> seeds) {
            this.servers = servers;
            this.seeds = seeds;
        }

        @Override
        boolean together(String one, String other) {
            return Servers.slot(one) == Servers.slot(other);
        }

        @Override
        CompletableFuture<Route> route(String key) {
            int slot = Servers.slot(key);
            Address moving = asked.remove(slot);
            if (moving != null) {
                return CompletableFuture.completedFuture(new Route(servers.node(moving), true));
            }
            return known().thenApply(done -> {
                Address owner = owners.get(slot);
                if (owner == null) {
                    learnAgain();
                    throw new Unanswered("no node of the cluster has slot " + slot, null);
                }
                return new Route(servers.node(owner), false);
            });
        }

        @Override
        void note(String key, Throwable failure) {
            String[] words = String.valueOf(failure.getMessage()).split(" ");
            String code = code(failure);
            Address there = (code.equals("MOVED") || code.equals("ASK")) && words.length == 3
                    ? namedBy(owners.get(Servers.slot(key)), words[2]) : null;
            if (there != null) {
                if (code.equals("ASK")) {
                    asked.put(Servers.slot(key), there);
                } else {
                    owners.set(Servers.slot(key), there);
                }
            } else if (Unanswered.mayRepeat(failure) && !code.equals("TRYAGAIN")) {
                // After TRYAGAIN, the owners would be the same.
                learnAgain();
            }
        }

        /**
         * Returns the node of a redirection. Without a host, or with {@code ?} for a host name that is not set, the
         * redirection means the host of the node that has answered; {@code null} if nobody knows which node that was.
         */
        private static Address namedBy(Address asked, String named) {
            int end = named.lastIndexOf(':');
            boolean isNameless = end == 0 || end == 1 && named.charAt(0) == '?';
            if (!isNameless) {
                return Address.parse(named, 6379);
            }
            return asked == null ? null : new Address(asked.host, Integer.parseInt(named.substring(end + 1)));
        }

        private synchronized void learnAgain() {
            stale = true;
        }

        private synchronized CompletableFuture<Void> known() {
            if (learning != null && !learning.isDone()) {
                return learning;
            }
            if (!stale) {
                return CompletableFuture.completedFuture(null);
            }
            stale = false;
            Set<Address> all = new LinkedHashSet<>(servers.known());
            all.addAll(seeds);
            learning = firstOf(List.copyOf(all), this::learnFrom);
            learning.whenComplete((done, failed) -> {
                if (failed != null) {
                    learnAgain();
                }
            });
            return learning;
        }

        private CompletableFuture<Void> learnFrom(Address address) {
            Node node = servers.node(address);
            return node.shared()
                    .thenCompose(connection -> node.ask(connection, Words.command("CLUSTER", "SLOTS")))
                    .thenAccept(reply -> learn(address, (List<?>) reply));
        }

        private void learn(Address source, List<?> ranges) {
            if (ranges.isEmpty()) {
                throw new Unanswered(source + " knows no slots", null);
            }
            for (Object each : ranges) {
                List<?> range = (List<?>) each;
                List<?> primary = (List<?>) range.get(2);
                String host = primary.get(0) == null ? "" : Words.text(primary.get(0));
                int port = Words.number(primary.get(1)).intValue();
                // A node that does not know its own address has the one at which it was asked.
                Address owner = new Address(host.isEmpty() || host.equals("?") ? source.host : host, port);
                for (int slot = Words.number(range.get(0)).intValue();
                        slot <= Words.number(range.get(1)).intValue(); slot++) {
                    owners.set(slot, owner);
                }
            }
        }
    }
}
