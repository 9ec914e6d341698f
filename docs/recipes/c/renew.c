/* Renew a lease while the work goes on. */
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
    long long token = number(redisCommand(redis, "DLOCK.ACQUIRE recipe:renew alice PX 10000"));

    /* Send this whenever about a third of the lease has passed. Without PX, the hold keeps its lease. */
    if (number(redisCommand(redis, "DLOCK.RENEW recipe:renew alice TOKEN %lld", token)) == 1) puts("renewed");

    number(redisCommand(redis, "DLOCK.RELEASE recipe:renew alice TOKEN %lld", token));
    /* The lock is lost: stop the work. A renewal never acquires a lock. */
    if (!number(redisCommand(redis, "DLOCK.RENEW recipe:renew alice TOKEN %lld", token))) puts("nothing to renew");
    redisFree(redis);
    return 0;
}
