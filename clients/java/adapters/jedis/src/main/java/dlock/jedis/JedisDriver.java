package dlock.jedis;

import dlock.Driver;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;

/**
 * Sends the commands of dlock through Jedis: a server, Sentinel or a cluster, whatever the {@link UnifiedJedis} is for.
 * Each thread that waits for a lock occupies a connection of its pool, so give it a pool of its own, with a connection
 * for each of them and a few more, and a socket timeout above {@code longestWait} (1 second).
 *
 * <pre>{@code
 * DLockClient client = DLockClient.builder().driver(new JedisDriver(jedis)).connect();
 * }</pre>
 *
 * <p>Several threads may use it. Closing it is up to whoever made the Jedis.
 */
public final class JedisDriver implements Driver {
    private final UnifiedJedis jedis;

    public JedisDriver(UnifiedJedis jedis) {
        this.jedis = jedis;
    }

    /** Calls a deprecated method: the one that replaces it cannot find the node of a cluster. */
    @SuppressWarnings("deprecation")
    @Override
    public Object call(byte[]... arguments) {
        ProtocolCommand command = () -> arguments[0];
        byte[][] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        int key = keyOf(new String(arguments[0], StandardCharsets.US_ASCII));
        return flat(key < 0 ? jedis.sendCommand(command, rest) : jedis.sendCommand(arguments[key], command, rest));
    }

    /** Returns the position of the key by which a cluster finds the node; -1 for a command without one. */
    private static int keyOf(String command) {
        return command.equals("DLOCK.SESSION") ? -1 : command.equals("DLOCK.MACQUIRE") ? 2 : 1;
    }

    /** A map of RESP3 is a list of names and values. */
    private static Object flat(Object reply) {
        if (!(reply instanceof List)) {
            return reply;
        }
        List<Object> flat = new ArrayList<>();
        for (Object each : (List<?>) reply) {
            if (each instanceof Map.Entry) {
                flat.add(flat(((Map.Entry<?, ?>) each).getKey()));
                flat.add(flat(((Map.Entry<?, ?>) each).getValue()));
            } else {
                flat.add(flat(each));
            }
        }
        return flat;
    }
}
