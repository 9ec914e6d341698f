/* A library that is preloaded into a server, to make its clock jump. It adds the number in the file $CHAOS_CLOCK
 * (8 bytes, signed µs) to the Unix time. Monotonic clocks stay unchanged. The library neither allocates nor locks,
 * because jemalloc asks for the time while it starts. (With the jemalloc of Debian's servers, libfaketime hangs for
 * that reason.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The number in the file, which the test changes at any time. Null: there is no file, and the clock does not jump. */
static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanos = time->tv_nsec + *offset % 1000000 * 1000;
    time->tv_sec += *offset / 1000000 + (nanos >= 1000000000) - (nanos < 0);
    time->tv_nsec = nanos - (nanos >= 1000000000) * 1000000000L + (nanos < 0) * 1000000000L;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

/* Removes the flag RTLD_DEEPBIND, with which Valkey loads modules: with the flag, a module uses the clock of libc. */
void *dlopen(const char *file, int mode) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(file, mode & ~RTLD_DEEPBIND);
}
