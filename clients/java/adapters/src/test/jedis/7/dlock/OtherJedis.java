package dlock;

import java.util.Set;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;

/** The clients of Jedis 7 and 8. */
final class OtherJedis {
    private OtherJedis() {}

    static UnifiedJedis server(int port, int database, ConnectionPoolConfig pool) {
        return RedisClient.builder().hostAndPort("127.0.0.1", port).poolConfig(pool)
                .clientConfig(DefaultJedisClientConfig.builder().database(database).build()).build();
    }

    static UnifiedJedis cluster(int port, ConnectionPoolConfig pool) {
        return RedisClusterClient.builder().nodes(Set.of(new HostAndPort("127.0.0.1", port))).poolConfig(pool).build();
    }

    static UnifiedJedis sentinel(String name, int port, ConnectionPoolConfig pool) {
        return RedisSentinelClient.builder().masterName(name).sentinels(Set.of(new HostAndPort("127.0.0.1", port)))
                .poolConfig(pool).build();
    }
}
