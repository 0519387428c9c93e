
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A helper that stops or dies where the test says: see points.py.  What it
 * says stands in a file that all processes have mapped, so that it may change
 * while they run.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_point.h"


#define SLOTS  4

typedef struct {
    char              name[56];
    uint32_t          sig;
    _Atomic uint32_t  left;         /* times it is passed; 0: not armed */
} slot_t;


static slot_t *
slots(void)
{
    int          fd;
    void        *p;
    const char  *path;

    path = getenv("LLM_CAPTURE_POINT");

    if (path == NULL) {
        return NULL;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);

    if (fd == -1) {
        return NULL;
    }

    p = mmap(NULL, SLOTS * sizeof(slot_t), PROT_READ|PROT_WRITE, MAP_SHARED,
             fd, 0);
    (void) close(fd);

    return p == MAP_FAILED ? NULL : p;
}


void
ngx_http_llm_capture_point(const char *name)
{
    int             i;

    static slot_t  *slot;

    if (slot == NULL) {
        slot = slots();
    }

    for (i = 0; slot && i < SLOTS; i++) {
        if (atomic_load(&slot[i].left)
            && strcmp(slot[i].name, name) == 0
            && atomic_fetch_sub(&slot[i].left, 1) == 1)
        {
            (void) kill(getpid(), (int) slot[i].sig);
        }
    }
}
