/* A wall clock that is wrong on request: preloaded into a node, it adds the milliseconds found in the
 * file CLOCK_SHIFT_FILE (an int64, mapped) to the time of day. Clocks that cannot be set are as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*get_time)(clockid_t, struct timespec *);

static const volatile int64_t *shift_ms;
static get_time real_gettime;

__attribute__((constructor)) static void open_control(void) {
    real_gettime = (get_time)dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        shift_ms = page;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    if (!real_gettime)
        real_gettime = (get_time)dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_gettime(clock, found);
    if (failed || !shift_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t ms = *shift_ms;
    found->tv_sec += ms / 1000;
    found->tv_nsec += ms % 1000 * 1000000;
    if (found->tv_nsec >= 1000000000) {
        found->tv_nsec -= 1000000000;
        found->tv_sec += 1;
    } else if (found->tv_nsec < 0) {
        found->tv_nsec += 1000000000;
        found->tv_sec -= 1;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (found)
        *found = now.tv_sec;
    return now.tv_sec;
}
