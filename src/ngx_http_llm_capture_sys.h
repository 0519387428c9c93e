
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The system calls of the writer, as a table: the tests put in calls that
 * write one byte, fail, or die, at a place of their choice.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SYS_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SYS_H_INCLUDED_


#include <stddef.h>
#include <sys/types.h>


struct stat;
struct iovec;


/* as in the manual, errno included; none is restarted after EINTR here */

typedef struct {
    int                     (*open)(const char *path, int flags, mode_t mode);
    int                     (*close)(int fd);
    int                     (*fstat)(int fd, struct stat *st);
    int                     (*lstat)(const char *path, struct stat *st);
    int                     (*fchmod)(int fd, mode_t mode);
    int                     (*flock)(int fd, int operation);
    off_t                   (*lseek)(int fd, off_t offset, int whence);
    ssize_t                 (*pread)(int fd, void *buf, size_t n,
                                off_t offset);
    ssize_t                 (*writev)(int fd, const struct iovec *iov, int n);
    int                     (*ftruncate)(int fd, off_t length);
    int                     (*fsync)(int fd);
    int                     (*rename)(const char *from, const char *to);
    int                     (*link)(const char *from, const char *to);
    int                     (*unlink)(const char *path);
    ssize_t                 (*getrandom)(void *buf, size_t n, unsigned flags);
} ngx_http_llm_capture_sys_t;


extern const ngx_http_llm_capture_sys_t  ngx_http_llm_capture_sys;


/* n bytes at offset, EINTR and short reads seen to; less only at the end */

ssize_t ngx_http_llm_capture_sys_read(const ngx_http_llm_capture_sys_t *sys,
    int fd, void *buf, size_t n, off_t offset);

/* all n bytes, or -1 */

int ngx_http_llm_capture_sys_write(const ngx_http_llm_capture_sys_t *sys,
    int fd, const char *buf, size_t n);

int ngx_http_llm_capture_sys_cut(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t length);


#endif /* _NGX_HTTP_LLM_CAPTURE_SYS_H_INCLUDED_ */
