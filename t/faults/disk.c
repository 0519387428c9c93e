
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A disk with a fault, by LD_PRELOAD: writes to regular files below a directory
 * named "capture" fail, come short or take their time, as a map shared with the
 * test says from call to call.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>


/* in step with disk.py */

typedef struct {
    volatile long  error;       /* errno of the writes that fail; 0: none */
    volatile long  every;       /* so many, of which the last one fails */
    volatile long  most;        /* bytes of a write; 0: all */
    volatile long  delay;       /* us before each write */
    volatile long  cut;         /* errno of each ftruncate(); 0: none */

    /* what was done */
    volatile long  writes;
    volatile long  failed;
    volatile long  shortened;
    volatile long  uncut;
} disk_t;


static disk_t  *disk;


__attribute__((constructor))
static void
disk_map(void)
{
    int          fd;
    const char  *path;

    path = getenv("LLM_CAPTURE_DISK");

    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    disk = mmap(NULL, sizeof(disk_t), PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (disk == MAP_FAILED) {
        disk = NULL;
    }

    (void) close(fd);
}


static int
disk_has(int fd)
{
    char         link[64], path[4096];
    ssize_t      n;
    struct stat  st;

    if (disk == NULL || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        return 0;
    }

    (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);

    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';

    return strstr(path, "/capture/") != NULL;
}


ssize_t
writev(int fd, const struct iovec *iov, int n)
{
    int             i;
    char            buf[65536];
    size_t          all, most, len, part;
    ssize_t         rc;
    static ssize_t  (*real)(int fd, const struct iovec *iov, int n);

    if (real == NULL) {
        real = (ssize_t (*)(int, const struct iovec *, int))
               dlsym(RTLD_NEXT, "writev");
    }

    if (!disk_has(fd)) {
        return real(fd, iov, n);
    }

    for (all = 0, i = 0; i < n; i++) {
        all += iov[i].iov_len;
    }

    disk->writes++;

    if (disk->delay) {
        (void) usleep((useconds_t) disk->delay);
    }

    if (disk->error && disk->writes % disk->every == 0) {
        disk->failed++;
        errno = (int) disk->error;
        return -1;
    }

    most = (size_t) disk->most;

    if (most == 0 || most > sizeof(buf)) {
        rc = real(fd, iov, n);

    } else {
        for (len = 0; n && len < most; iov++, n--) {
            part = iov->iov_len < most - len ? iov->iov_len : most - len;
            memcpy(buf + len, iov->iov_base, part);
            len += part;
        }

        rc = write(fd, buf, len);
    }

    if (rc != -1 && (size_t) rc < all) {
        disk->shortened++;
    }

    return rc;
}


static int
disk_cut(const char *name, int fd, off_t length)
{
    int  (*real)(int fd, off_t length);

    if (disk_has(fd) && disk->cut) {
        disk->uncut++;
        errno = (int) disk->cut;
        return -1;
    }

    real = (int (*)(int, off_t)) dlsym(RTLD_NEXT, name);

    return real(fd, length);
}


int
ftruncate(int fd, off_t length)
{
    return disk_cut("ftruncate", fd, length);
}


int
ftruncate64(int fd, off_t length)
{
    return disk_cut("ftruncate64", fd, length);
}
