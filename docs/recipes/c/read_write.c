/* Readers share a lock, a writer excludes all others. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

static redisContext *connected(void) {
    const char *host = getenv("DLOCK_TEST_HOST"), *port = getenv("DLOCK_TEST_PORT");
    redisContext *redis = redisConnect(host ? host : "127.0.0.1", port ? atoi(port) : 6379);
    if (!redis || redis->err) exit(1);
    return redis;
}

/* Returns the integer of a reply, or 0 for nil. Any other reply ends the program. */
static long long number(redisReply *reply) {
    if (!reply || (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_NIL)) exit(1);
    long long result = reply->type == REDIS_REPLY_NIL ? 0 : reply->integer;
    freeReplyObject(reply);
    return result;
}

int main(void) {
    redisContext *redis = connected();
    long long alice = number(redisCommand(redis, "DLOCK.RLOCK recipe:read_write alice PX 30000"));
    long long bob = number(redisCommand(redis, "DLOCK.RLOCK recipe:read_write bob PX 30000"));
    if (alice && bob) puts("alice and bob: reading");
    if (!number(redisCommand(redis, "DLOCK.WLOCK recipe:read_write carol PX 30000"))) puts("carol: not granted");

    number(redisCommand(redis, "DLOCK.RELEASE recipe:read_write alice TOKEN %lld", alice));
    number(redisCommand(redis, "DLOCK.RELEASE recipe:read_write bob TOKEN %lld", bob));
    long long carol = number(redisCommand(redis, "DLOCK.WLOCK recipe:read_write carol PX 30000"));
    if (carol) puts("carol: writing");
    number(redisCommand(redis, "DLOCK.RELEASE recipe:read_write carol TOKEN %lld", carol));
    redisFree(redis);
    return 0;
}
