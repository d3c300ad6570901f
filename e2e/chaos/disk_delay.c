/* A disk that is slow on request: preloaded into one node, it delays every call that makes data
 * durable by the milliseconds found in the file CHAOS_DISK_DELAY_FILE (an int32, mapped), read
 * again every few milliseconds so that a stall ends when the test says so. Nothing is lost and
 * nothing is reordered.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STEP_MS 5

static const volatile int32_t *delay_ms;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("CHAOS_DISK_DELAY_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof(int32_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        delay_ms = page;
    close(fd);
}

static void delay(void) {
    const struct timespec step = {0, STEP_MS * 1000000L};
    for (int waited = 0; delay_ms && waited < *delay_ms; waited += STEP_MS)
        nanosleep(&step, NULL);
}

int fdatasync(int fd) {
    delay();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    delay();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

/* The log writes through with RWF_DSYNC; CPython calls whichever name its libc headers chose. */
typedef ssize_t (*write_through)(int, const struct iovec *, int, off64_t, int);

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    delay();
    return ((write_through)dlsym(RTLD_NEXT, "pwritev2"))(fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    delay();
    return ((write_through)dlsym(RTLD_NEXT, "pwritev64v2"))(fd, pieces, count, offset, flags);
}
