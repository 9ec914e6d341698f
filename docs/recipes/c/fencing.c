/* A write that a database rejects if a later owner of the lock has written. */
#include <hiredis/hiredis.h>
#include <sqlite3.h>
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

static int write_report(sqlite3 *database, const char *body, long long token) {
    sqlite3_stmt *update;
    const char *sql = "UPDATE report SET body = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2";
    if (sqlite3_prepare_v2(database, sql, -1, &update, NULL) != SQLITE_OK) exit(1);
    sqlite3_bind_text(update, 1, body, -1, SQLITE_STATIC);
    sqlite3_bind_int64(update, 2, token);
    if (sqlite3_step(update) != SQLITE_DONE) exit(1);
    sqlite3_finalize(update);
    return sqlite3_changes(database) == 1;
}

int main(void) {
    redisContext *redis = connected();
    sqlite3 *database;
    const char *schema = "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL);"
                         "INSERT INTO report VALUES (1, '', 0)";
    if (sqlite3_open(":memory:", &database) != SQLITE_OK) exit(1);
    if (sqlite3_exec(database, schema, NULL, NULL, NULL) != SQLITE_OK) exit(1);

    long long alice = number(redisCommand(redis, "DLOCK.ACQUIRE recipe:fencing alice PX 30000"));
    number(redisCommand(redis, "DEL recipe:fencing")); /* her lease ended while she was paused */
    long long bob = number(redisCommand(redis, "DLOCK.ACQUIRE recipe:fencing bob PX 30000"));

    if (write_report(database, "by bob", bob)) puts("bob: written");
    if (!write_report(database, "by alice", alice)) puts("alice: refused, her token is the older one");
    number(redisCommand(redis, "DLOCK.RELEASE recipe:fencing bob TOKEN %lld", bob));
    sqlite3_close(database);
    redisFree(redis);
    return 0;
}
