/* A lock that ends with its connection: the server renews it, and releases it when the connection closes. */
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
    redisContext *alice = connected();
    number(redisCommand(alice, "DLOCK.ACQUIRE recipe:session alice PX 10000 SESSION"));
    /* The death of the process would close the connection, too, unless a child forked without exec keeps it open. */
    redisFree(alice);

    /* The wait of 5 s is shorter than alice's lease, so that only the end of her connection can lead to a grant. */
    redisContext *bob = connected();
    long long token = number(redisCommand(bob, "DLOCK.ACQUIRE recipe:session bob PX 10000 BLOCK 5000"));
    if (token) { /* 0: the 5 seconds are over */
        puts("bob: granted when the connection of alice ended");
        number(redisCommand(bob, "DLOCK.RELEASE recipe:session bob TOKEN %lld", token));
    }
    redisFree(bob);
    return 0;
}
