/* Disks that fail or forget on request: preloaded into nodes, it looks at writes and syncs of files
 * in DISK_FAULT_ROOT/NODE/store. The file NODE/disk_fault (two int32, mapped) says what goes wrong;
 * NODE/disk_journal gets the bytes that writes replace, so that whoever killed the node can put
 * them back: what was not synced, or what a lying disk did not sync, is lost then.
 *
 * control[0]: fail that many of the next syncs with EIO; each that fails takes one off.
 * control[1]: 1 to lie: syncs succeed and make nothing durable.
 *
 * A record of the journal: six int64 (kind, device, inode, offset, count, size of the file before),
 * then for kind 1, a write, the count bytes that were there. Kind 2 is an honest sync of the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITE 1
#define SYNC 2
#define STORE "/store/"

static int32_t *control;
static int journal = -1;
static const char *root;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

typedef ssize_t (*pwrite_call)(int, const void *, size_t, off64_t);
typedef ssize_t (*pwritev2_call)(int, const struct iovec *, int, off64_t, int);
typedef int (*sync_call)(int);

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void open_control(const char *node, int size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%.*s/disk_fault", root, size, node);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return; /* this node's disk is right */
    void *page = mmap(NULL, 2 * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        abort();
    snprintf(path, sizeof path, "%s/%.*s/disk_journal", root, size, node);
    journal = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0)
        abort();
    control = page;
}

/* Whether the file is one of a node's store; its control file is found with the first one. */
static int below_root(int fd, struct stat *found) {
    char link[64], path[PATH_MAX];
    if (!root && !(root = getenv("DISK_FAULT_ROOT")))
        return 0;
    if (fstat(fd, found) != 0 || !S_ISREG(found->st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    size_t length = strlen(root);
    if (size <= (ssize_t)length || memcmp(path, root, length) || path[length] != '/')
        return 0;
    path[size] = 0;
    char *node = path + length + 1, *rest = strchr(node, '/');
    if (!rest || strncmp(rest, STORE, strlen(STORE)))
        return 0;
    pthread_mutex_lock(&turn);
    if (!control)
        open_control(node, (int)(rest - node));
    pthread_mutex_unlock(&turn);
    return control != NULL;
}

static void must(int fine) {
    if (!fine)
        abort(); /* a journal with a hole would restore what no disk could hold */
}

static void record(int64_t kind, const struct stat *file, int64_t offset, int64_t count,
                   const void *bytes) {
    int64_t head[6] = {kind, (int64_t)file->st_dev, (int64_t)file->st_ino,
                       offset, count, (int64_t)file->st_size};
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, (size_t)count}};
    must(writev(journal, parts, kind == WRITE ? 2 : 1)
         == (ssize_t)(sizeof head + (kind == WRITE ? count : 0)));
}

static void remember(int fd, const struct stat *file, off64_t offset, size_t wanted) {
    char *before = malloc(wanted ? wanted : 1);
    must(before != NULL);
    ssize_t there = pread64(fd, before, wanted, offset);
    record(WRITE, file, offset, there < 0 ? 0 : there, before);
    free(before);
}

/* Returns 1 to sync, 0 to say that it was done, -1 to fail with EIO. */
static int decide(void) {
    if (control[0] > 0) {
        control[0]--;
        errno = EIO;
        return -1;
    }
    return control[1] ? 0 : 1;
}

static int synced(int fd, const char *name) {
    struct stat file;
    sync_call call = (sync_call)real(name);
    if (!below_root(fd, &file))
        return call(fd);
    pthread_mutex_lock(&turn);
    int honest = decide(), result = honest > 0 ? call(fd) : honest, error = errno;
    if (honest > 0 && result == 0)
        record(SYNC, &file, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    errno = error;
    return result;
}

int fdatasync(int fd) { return synced(fd, "fdatasync"); }
int fsync(int fd) { return synced(fd, "fsync"); }

static ssize_t written(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    struct stat file;
    pwritev2_call call = (pwritev2_call)real("pwritev2");
    if (!below_root(fd, &file))
        return call(fd, pieces, count, offset, flags);
    size_t wanted = 0;
    for (int piece = 0; piece < count; piece++)
        wanted += pieces[piece].iov_len;
    pthread_mutex_lock(&turn);
    int sync = flags & (RWF_DSYNC | RWF_SYNC), honest = sync ? decide() : 0, error = errno;
    ssize_t result = honest;
    remember(fd, &file, offset, wanted);
    if (honest >= 0) {
        result = call(fd, pieces, count, offset, honest ? flags : flags & ~(RWF_DSYNC | RWF_SYNC));
        error = errno;
        if (honest && result >= 0)
            record(SYNC, &file, 0, 0, NULL);
    }
    pthread_mutex_unlock(&turn);
    errno = error;
    return result;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return written(fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    return written(fd, pieces, count, offset, flags);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    return written(fd, pieces, count, offset, 0);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset) {
    return written(fd, pieces, count, offset, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    struct iovec piece = {(void *)bytes, count};
    return written(fd, &piece, 1, offset, 0);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    struct iovec piece = {(void *)bytes, count};
    return written(fd, &piece, 1, offset, 0);
}
