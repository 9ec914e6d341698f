/* Acquire a lock, or learn at once that another owner holds it. */
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
    long long token = number(redisCommand(redis, "DLOCK.ACQUIRE recipe:acquire alice PX 30000"));
    if (token) puts("alice: granted");
    if (!number(redisCommand(redis, "DLOCK.ACQUIRE recipe:acquire bob PX 30000"))) puts("bob: not granted");

    /* The release carries the token, so a late release cannot affect the next hold. */
    if (number(redisCommand(redis, "DLOCK.RELEASE recipe:acquire alice TOKEN %lld", token)) == 1) puts("alice: released");
    redisFree(redis);
    return 0;
}
