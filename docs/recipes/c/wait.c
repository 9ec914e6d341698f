/* Wait in the queue: one command on a connection of its own. */
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
    number(redisCommand(redis, "DLOCK.ACQUIRE recipe:wait alice PX 200")); /* her lease ends in a moment */

    redisContext *line = connected(); /* without redisSetTimeout */
    long long token = number(redisCommand(line, "DLOCK.ACQUIRE recipe:wait bob PX 30000 BLOCK 60000 REQUEST 1"));
    redisFree(line);

    if (token) { /* 0: the 60 seconds are over */
        puts("bob: granted after waiting");
        number(redisCommand(redis, "DLOCK.RELEASE recipe:wait bob TOKEN %lld", token));
    }
    redisFree(redis);
    return 0;
}
