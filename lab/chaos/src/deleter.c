/* A second module in the server: `deleter.delete key` deletes a key on a thread that takes the server's lock, as any module
 * with threads may. `deleter.deleted` tells how many times that was done. The functions are asked for by name, so that no
 * header of a server is needed. */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

typedef struct Context Context;
typedef struct String String;
typedef struct Reply Reply;
typedef int Handler(Context *, String **, int);

/* Valkey moves no slot while a module does not say that it can take part. Redis does not ask. */
enum { OK = 0, FAILED = 1, API_VERSION = 1, CAN_MOVE_WITH_SLOTS = 1 << 5 };

static int (*get_api)(const char *, void *);
static void (*set_attributes)(Context *, const char *, int, int);
static void (*set_options)(Context *, int);
static int (*create_command)(Context *, const char *, Handler *, const char *, int, int, int);
static String *(*copy_string)(Context *, const String *);
static void (*free_string)(Context *, String *);
static Reply *(*call)(Context *, const char *, const char *, ...);
static void (*free_reply)(Reply *);
static int (*answer_text)(Context *, const char *);
static int (*answer_error)(Context *, const char *);
static int (*answer_number)(Context *, long long);
static Context *(*thread_context)(void *);
static void (*free_context)(Context *);
static void (*lock_server)(Context *);
static void (*unlock_server)(Context *);
static int (*may_not_write)(void);

/* Read and written only with the server's lock. */
static long long deleted;

static void *delete_it(void *key) {
    Context *context = thread_context(NULL);
    lock_server(context);
    /* A module writes nothing by itself while writes are paused. */
    while (may_not_write()) {
        unlock_server(context);
        usleep(1000);
        lock_server(context);
    }
    Reply *reply = call(context, "DEL", "!s", key);
    if (reply) free_reply(reply);
    free_string(NULL, key);
    deleted++;
    unlock_server(context);
    free_context(context);
    return NULL;
}

static int on_delete(Context *context, String **words, int count) {
    if (count != 2) return answer_error(context, "ERR which key?");
    pthread_t thread;
    /* A copy that belongs to no context outlives the command. */
    if (pthread_create(&thread, NULL, delete_it, copy_string(NULL, words[1]))) return answer_error(context, "ERR no thread");
    pthread_detach(thread);
    return answer_text(context, "OK");
}

static int on_deleted(Context *context, String **words, int count) {
    (void)words;
    (void)count;
    return answer_number(context, deleted);
}

static const struct {
    const char *name;
    void *function;
} needed[] = {
    {"RedisModule_SetModuleAttribs", &set_attributes},
    {"RedisModule_SetModuleOptions", &set_options},
    {"RedisModule_CreateCommand", &create_command},
    {"RedisModule_CreateStringFromString", &copy_string},
    {"RedisModule_FreeString", &free_string},
    {"RedisModule_Call", &call},
    {"RedisModule_FreeCallReply", &free_reply},
    {"RedisModule_ReplyWithSimpleString", &answer_text},
    {"RedisModule_ReplyWithError", &answer_error},
    {"RedisModule_ReplyWithLongLong", &answer_number},
    {"RedisModule_GetThreadSafeContext", &thread_context},
    {"RedisModule_FreeThreadSafeContext", &free_context},
    {"RedisModule_ThreadSafeContextLock", &lock_server},
    {"RedisModule_ThreadSafeContextUnlock", &unlock_server},
    {"RedisModule_AvoidReplicaTraffic", &may_not_write},
};

__attribute__((visibility("default"))) int RedisModule_OnLoad(Context *context, String **words, int count) {
    (void)words;
    (void)count;
    /* The server keeps the function that finds the others at the beginning of the context. */
    get_api = *(int (**)(const char *, void *))context;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (get_api(needed[i].name, needed[i].function) != OK) return FAILED;
    set_attributes(context, "deleter", 1, API_VERSION);
    set_options(context, CAN_MOVE_WITH_SLOTS);
    if (create_command(context, "deleter.delete", on_delete, "", 0, 0, 0) != OK) return FAILED;
    return create_command(context, "deleter.deleted", on_deleted, "", 0, 0, 0);
}
