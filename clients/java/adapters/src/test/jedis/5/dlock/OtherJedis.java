package dlock;

import java.util.Set;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisSentineled;
import redis.clients.jedis.UnifiedJedis;

/** The clients of Jedis 5 and 6. */
final class OtherJedis {
    private OtherJedis() {}

    static UnifiedJedis server(int port, int database, ConnectionPoolConfig pool) {
        return new JedisPooled(pool, new HostAndPort("127.0.0.1", port),
                DefaultJedisClientConfig.builder().database(database).build());
    }

    static UnifiedJedis cluster(int port, ConnectionPoolConfig pool) {
        return new JedisCluster(Set.of(new HostAndPort("127.0.0.1", port)), DefaultJedisClientConfig.builder().build(), 5, pool);
    }

    static UnifiedJedis sentinel(String name, int port, ConnectionPoolConfig pool) {
        DefaultJedisClientConfig plain = DefaultJedisClientConfig.builder().build();
        return new JedisSentineled(name, plain, pool, Set.of(new HostAndPort("127.0.0.1", port)), plain);
    }
}
