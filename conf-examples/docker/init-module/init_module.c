
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Copies the module into the volume that the controller mounts too.  There is
 * no shell in the image.  Renamed when it is whole: nginx of a pod whose init
 * container runs again never sees a part.
 */


#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


#define MODULE  "ngx_http_llm_capture_module.so"


static void
failed(const char *what)
{
    perror(what);
    exit(1);
}


int
main(void)
{
    int      in, out;
    char     buf[65536], *p;
    ssize_t  n, done;

    in = open("/" MODULE, O_RDONLY);

    if (in == -1) {
        failed("/" MODULE);
    }

    if (chdir("/modules_mount") == -1) {
        failed("/modules_mount");
    }

    out = open(MODULE ".new", O_WRONLY|O_CREAT|O_TRUNC, 0644);

    if (out == -1) {
        failed("/modules_mount/" MODULE ".new");
    }

    while ((n = read(in, buf, sizeof(buf))) > 0) {
        for (p = buf; n > 0; p += done, n -= done) {
            done = write(out, p, n);

            if (done == -1) {
                failed("write");
            }
        }
    }

    if (n == -1 || fsync(out) == -1 || close(out) == -1
        || rename(MODULE ".new", MODULE) == -1)
    {
        failed("/modules_mount/" MODULE);
    }

    return 0;
}
