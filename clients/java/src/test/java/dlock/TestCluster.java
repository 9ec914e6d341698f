package dlock;

import static dlock.TestServer.soon;

import java.util.List;

/** A cluster of two nodes with half of the slots each. */
final class TestCluster implements AutoCloseable {
    private static final int SLOTS = 16384;

    final TestServer first;
    final TestServer second;

    TestCluster() {
        first = node();
        second = node();
        first.run("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS / 2 - 1);
        second.run("CLUSTER", "ADDSLOTSRANGE", SLOTS / 2, SLOTS - 1);
        first.run("CLUSTER", "SET-CONFIG-EPOCH", 1);
        second.run("CLUSTER", "SET-CONFIG-EPOCH", 2);
        first.run("CLUSTER", "MEET", "127.0.0.1", second.port);
        soon("the nodes know each other", () -> ready(first, 2) && ready(second, 2));
    }

    static TestServer node() {
        return TestServer.start("--cluster-enabled", "yes", "--cluster-node-timeout", "5000");
    }

    /**
     * Returns whether a node knows all nodes and the latest epoch. A replica that did not know this epoch would take
     * over with the same one, and the cluster would undo the takeover.
     */
    private static boolean ready(TestServer node, int nodes) {
        String info = Words.text(node.run("CLUSTER", "INFO"));
        return info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:" + nodes)
                && info.contains("cluster_current_epoch:2");
    }

    /** Adds a replica of the second node. A test lets it take over with {@code CLUSTER FAILOVER TAKEOVER}. */
    TestServer replica() {
        TestServer replica = node();
        replica.run("CLUSTER", "MEET", "127.0.0.1", second.port);
        soon("the nodes know the replica", () -> ready(first, 3) && ready(second, 3) && ready(replica, 3));
        replica.run("CLUSTER", "REPLICATE", id(second));
        soon("the replica is connected", () -> second.figure("replication", "connected_slaves") == 1);
        return replica;
    }

    /** Returns a client that knows two addresses, the first of which does not answer. */
    DLockClient client() {
        return TestServer.connected("redis://127.0.0.1:1,127.0.0.1:" + first.port);
    }

    String id(TestServer node) {
        return Words.text(node.run("CLUSTER", "MYID"));
    }

    /** Returns the node that has the slot of a key. */
    TestServer with(String key) {
        long slot = Servers.slot(key);
        for (Object each : (List<?>) first.run("CLUSTER", "SLOTS")) {
            List<?> range = (List<?>) each;
            if (slot >= (long) range.get(0) && slot <= (long) range.get(1)) {
                return (long) ((List<?>) range.get(2)).get(1) == first.port ? first : second;
            }
        }
        throw new AssertionError("no node has " + key);
    }

    TestServer without(String key) {
        return with(key) == first ? second : first;
    }

    /** Gives the slot of a key that does not exist to the other node. */
    void move(String key) {
        TestServer here = with(key);
        TestServer there = without(key);
        int slot = Servers.slot(key);
        // A node that imports a slot gets a higher epoch. Without it, gossip of the old node could take the slot back.
        there.run("CLUSTER", "SETSLOT", slot, "IMPORTING", id(here));
        here.run("CLUSTER", "SETSLOT", slot, "MIGRATING", id(there));
        there.run("CLUSTER", "SETSLOT", slot, "NODE", id(there));
        here.run("CLUSTER", "SETSLOT", slot, "NODE", id(there));
    }

    /** Moves a key and its slot to the other node, as resharding does, and returns that node. */
    TestServer migrate(String key) {
        TestServer here = with(key);
        TestServer there = without(key);
        int slot = Servers.slot(key);
        there.run("CLUSTER", "SETSLOT", slot, "IMPORTING", id(here));
        here.run("CLUSTER", "SETSLOT", slot, "MIGRATING", id(there));
        here.run("MIGRATE", "127.0.0.1", there.port, key, 0, 5000);
        there.run("CLUSTER", "SETSLOT", slot, "NODE", id(there));
        here.run("CLUSTER", "SETSLOT", slot, "NODE", id(there));
        return there;
    }

    @Override
    public void close() {
        first.close();
        second.close();
    }
}
