
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A slow disk, preloaded into nginx: writev() to a file takes 2 ms and what
 * LLM_CAPTURE_SLOW (MB/s) takes for its bytes.  Sockets stay as they are.
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>


ssize_t
writev(int fd, const struct iovec *iov, int n)
{
    long             ns;
    ssize_t          rc;
    const char      *rate;
    struct stat      st;
    struct timespec  ts;

    rc = syscall(SYS_writev, fd, iov, n);
    rate = getenv("LLM_CAPTURE_SLOW");

    if (rc > 0 && rate && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        ns = 2000000 + rc * 1000 / atol(rate);
        ts.tv_sec = ns / 1000000000;
        ts.tv_nsec = ns % 1000000000;
        (void) nanosleep(&ts, NULL);
    }

    return rc;
}
