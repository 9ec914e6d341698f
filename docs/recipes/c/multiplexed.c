/* A connection for many owners, and a second one for waiting. */
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
    redisContext *shared = connected();

    /* The owner names tell the holds on a connection apart. All holds with SESSION end with it. */
    long long alice = number(redisCommand(shared, "DLOCK.ACQUIRE recipe:multiplexed:a alice PX 10000 SESSION"));
    long long bob = number(redisCommand(shared, "DLOCK.ACQUIRE recipe:multiplexed:b bob PX 200"));
    if (alice && bob) puts("alice and bob: granted on one connection");

    /* BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION. */
    redisContext *line = connected();
    long long carol = number(redisCommand(line, "DLOCK.ACQUIRE recipe:multiplexed:b carol PX 10000 BLOCK 5000"));
    long long bound = number(redisCommand(shared, "DLOCK.RENEW recipe:multiplexed:b carol TOKEN %lld SESSION", carol));
    redisFree(line);
    if (bound == 1) puts("carol: waited on another, bound to the first");

    number(redisCommand(shared, "DLOCK.RELEASE recipe:multiplexed:a alice TOKEN %lld", alice));
    number(redisCommand(shared, "DLOCK.RELEASE recipe:multiplexed:b carol TOKEN %lld", carol));
    redisFree(shared);
    return 0;
}
