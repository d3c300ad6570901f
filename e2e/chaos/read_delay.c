/* A disk whose reads are slow on request: as disk_delay.c, for every call that reads. What a caller
 * wants only if it is in memory (RWF_NOWAIT) is not there then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

static int is_elsewhere(int flags) {
    return delay_ms && *delay_ms && (flags & RWF_NOWAIT);
}

typedef ssize_t (*read_at)(int, void *, size_t, off64_t);

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    delay();
    return ((read_at)dlsym(RTLD_NEXT, "pread"))(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    delay();
    return ((read_at)dlsym(RTLD_NEXT, "pread64"))(fd, data, size, offset);
}

/* CPython calls whichever name its libc headers chose. */
typedef ssize_t (*read_pieces)(int, const struct iovec *, int, off64_t, int);

ssize_t preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    if (is_elsewhere(flags)) {
        errno = EAGAIN;
        return -1;
    }
    return ((read_pieces)dlsym(RTLD_NEXT, "preadv2"))(fd, pieces, count, offset, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    if (is_elsewhere(flags)) {
        errno = EAGAIN;
        return -1;
    }
    return ((read_pieces)dlsym(RTLD_NEXT, "preadv64v2"))(fd, pieces, count, offset, flags);
}
