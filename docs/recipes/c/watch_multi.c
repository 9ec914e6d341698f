/* A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI. */
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

static void run(redisContext *redis, const char *command) {
    redisReply *reply = redisCommand(redis, command);
    if (!reply || reply->type == REDIS_REPLY_ERROR) exit(1);
    freeReplyObject(reply);
}

/* Writes if the lock is still held, and returns whether it has written. With `other`, the lock is deleted meanwhile. */
static int written(redisContext *redis, long long token, redisContext *other) {
    run(redis, "WATCH recipe:watch_multi");
    if (!number(redisCommand(redis, "DLOCK.CHECK recipe:watch_multi %lld", token))) {
        run(redis, "UNWATCH");
        return 0;
    }
    if (other) run(other, "DEL recipe:watch_multi"); /* for example an operator */
    run(redis, "MULTI");
    run(redis, "SET recipe:value done");
    redisReply *replies = redisCommand(redis, "EXEC");
    if (!replies) exit(1);
    int all = replies->type == REDIS_REPLY_ARRAY;
    freeReplyObject(replies);
    return all;
}

int main(void) {
    redisContext *redis = connected(), *other = connected();
    long long token = number(redisCommand(redis, "DLOCK.ACQUIRE recipe:watch_multi alice PX 30000"));
    if (written(redis, token, NULL)) puts("alice: written");
    if (!written(redis, token, other)) puts("alice: not written, the lock was lost");
    redisFree(other);
    redisFree(redis);
    return 0;
}
