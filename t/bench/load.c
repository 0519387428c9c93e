
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * usage: load [-2] [-c connections] [-t seconds] [-r rate] [-n first]
 *             [-k uris] [-w held] -p port -u uri -b body
 *
 * Without a rate each connection sends its next request when the last one is
 * answered.  With a rate requests fall due at even distances whatever the
 * answers do, and a latency counts from when its request was due: one that
 * waits for a free connection waits in the figures too.
 *
 * uri: "/n0000" in it becomes a number below `uris`.  held: so many uploads
 * over connections of their own are begun before and ended after the load; a
 * line of standard input is waited for before and after it.
 *
 * Prints a line of JSON.  Bounded by the time and by REQUESTS.
 */

#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>


#define REQUESTS  4000000
#define PATIENCE  60                  /* seconds for the last answers */
#define SECOND    1000000000ULL


static request_t   req;
static conn_t     *conns;
static int        *held;
static int         nconns = 4, nheld, nuris = 1, epfd, timer;
static double      seconds = 1, rate;
static uint64_t    first = 1, sent, answered, start, end;
static uint32_t   *took;              /* each, in 100 ns */
static unsigned    errors, idle;


static uint64_t
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * SECOND + (uint64_t) ts.tv_nsec;
}


static void
die(const char *what)
{
    perror(what);
    exit(2);
}


static int
dial(void)
{
    int                 fd, on;
    struct sockaddr_in  sin;

    fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) req.port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    if (fd == -1 || connect(fd, (struct sockaddr *) &sin, sizeof(sin)) != 0) {
        die("connect()");
    }

    on = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));

    return fd;
}


static void
watch(conn_t *c, int writable, int op)
{
    struct epoll_event  ev;

    if (op == EPOLL_CTL_MOD && c->writable == writable) {
        return;
    }

    c->writable = writable;
    ev.events = EPOLLIN | (writable ? EPOLLOUT : 0);
    ev.data.ptr = c;

    if (epoll_ctl(epfd, op, c->fd, &ev) != 0) {
        die("epoll_ctl()");
    }
}


static void
open_conn(conn_t *c)
{
    static const uint8_t  hello[] =
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        "\0\0\0\4\0\0\0\0\0"
        "\0\0\4\10\0\0\0\0\0\x7f\0\0\0";

    c->fd = dial();

    if (req.h2 && write(c->fd, hello, sizeof(hello) - 1)
                  != (ssize_t) sizeof(hello) - 1)
    {
        die("write()");
    }

    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0) {
        die("fcntl()");
    }

    wire_layout(c, &req);
    watch(c, 0, EPOLL_CTL_ADD);
}


static void
push(conn_t *c)
{
    ssize_t  n;

    while (c->pos < c->stop) {
        n = write(c->fd, c->out + c->pos, c->stop - c->pos);

        if (n == -1 && errno == EAGAIN) {
            break;
        }

        if (n <= 0) {
            die("write()");
        }

        c->pos += (size_t) n;
    }

    watch(c, c->pos < c->stop, EPOLL_CTL_MOD);
}


static void
submit(conn_t *c, uint64_t due, uint64_t at)
{
    c->busy = 1;
    c->due = due;
    idle--;

    wire_next(c, &req, first + sent, sent % (uint64_t) nuris, at);
    sent++;
    push(c);
}


/* the moment request `sent` is due */

static uint64_t
next_due(void)
{
    return start + (uint64_t) ((double) sent * 1e9 / rate);
}


static int
over(uint64_t at)
{
    return at >= end || sent == REQUESTS;
}


static void
schedule(void)
{
    int                i;
    uint64_t           at, due;
    struct itimerspec  it;

    at = now();

    for (i = 0; i < nconns && idle && !over(rate ? next_due() : at); i++) {
        if (conns[i].busy) {
            continue;
        }

        due = rate ? next_due() : at;

        if (due > at) {
            memset(&it, 0, sizeof(it));
            it.it_value.tv_sec = (time_t) (due / SECOND);
            it.it_value.tv_nsec = (long) (due % SECOND);
            (void) timerfd_settime(timer, TFD_TIMER_ABSTIME, &it, NULL);
            break;
        }

        submit(&conns[i], due, at);
    }
}


static void
answer(conn_t *c)
{
    int       rc;
    size_t    n;
    ssize_t   got;
    uint8_t   reply[128];
    uint64_t  t;

    got = read(c->fd, c->in + c->in_len, sizeof(c->in) - 1 - c->in_len);

    if (got == -1 && errno == EAGAIN) {
        return;
    }

    if (got <= 0) {
        fprintf(stderr, "a connection was closed\n");
        exit(2);
    }

    c->in_len += (size_t) got;
    rc = wire_answer(c, &req, reply, &n);

    if (n && write(c->fd, reply, n) != (ssize_t) n) {
        die("write()");
    }

    if (rc == ANSWER_MORE) {
        if (c->busy) {
            push(c);
        }
        return;
    }

    errors += rc == ANSWER_BAD;
    t = (now() - c->due) / 100;
    took[answered++] = t > UINT32_MAX ? UINT32_MAX : (uint32_t) t;
    c->busy = 0;
    idle++;

    if (!rate) {
        t = now();

        if (!over(t)) {
            submit(c, t, t);
        }
    }
}


static void
run(void)
{
    int                 i, n;
    uint64_t            expired, limit;
    struct epoll_event  ev[64];

    start = now();
    end = start + (uint64_t) (seconds * 1e9);
    limit = end + PATIENCE * SECOND;
    idle = (unsigned) nconns;

    schedule();

    while (sent == 0 || answered < sent || !over(rate ? next_due() : now())) {
        n = epoll_wait(epfd, ev, 64, 1000);

        if (now() > limit) {
            fprintf(stderr, "no answer in time\n");
            exit(2);
        }

        for (i = 0; i < n; i++) {
            if (ev[i].data.ptr == NULL) {
                (void) !read(timer, &expired, sizeof(expired));
                continue;
            }

            if (ev[i].events & EPOLLOUT) {
                push(ev[i].data.ptr);
            }

            if (ev[i].events & ~(uint32_t) EPOLLOUT) {
                answer(ev[i].data.ptr);
            }
        }

        schedule();
    }

    end = now();
}


static void
wait_line(const char *say)
{
    char  line[16];

    puts(say);
    fflush(stdout);
    (void) !fgets(line, sizeof(line), stdin);
}


/* uploads that have sent half of their body; numbers of their own, behind */

static void
hold(void)
{
    int        i;
    conn_t     c;
    request_t  h1;

    h1 = req;
    h1.h2 = 0;
    memset(&c, 0, offsetof(conn_t, in));
    wire_layout(&c, &h1);
    held = calloc((size_t) nheld, sizeof(int));

    for (i = 0; i < nheld; i++) {
        held[i] = dial();
        wire_next(&c, &h1, first + REQUESTS + (uint64_t) i, 0, now());

        if (write(held[i], c.out, c.body + req.len / 2)
            != (ssize_t) (c.body + req.len / 2))
        {
            die("write()");
        }
    }

    free(c.out);
}


static void
release(void)
{
    int     i;
    char    text[4096];
    size_t  half;

    half = req.len / 2;

    for (i = 0; i < nheld; i++) {
        if (write(held[i], req.body + half, req.len - half)
            != (ssize_t) (req.len - half)
            || read(held[i], text, sizeof(text)) < 12
            || memcmp(text, "HTTP/1.1 200", 12) != 0)
        {
            errors++;
        }

        close(held[i]);
    }
}


static int
by_value(const void *a, const void *b)
{
    uint32_t  x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return x < y ? -1 : x > y;
}


static double
quantile(double q)
{
    return answered ? took[(uint64_t) (q * (double) (answered - 1))] / 10. : 0;
}


static void
report(void)
{
    double  elapsed;

    elapsed = (double) (end - start) / 1e9;
    qsort(took, answered, sizeof(uint32_t), by_value);

    printf("{\"requests\":%llu,\"errors\":%u,\"held\":%d,\"seconds\":%.6f,"
           "\"per_second\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,"
           "\"max\":%.1f}\n", (unsigned long long) answered, errors, nheld,
           elapsed, (double) answered / elapsed, quantile(.5), quantile(.99),
           quantile(.999), quantile(1));
    fflush(stdout);
}


static void
load_body(const char *name)
{
    int          fd;
    uint8_t     *p;
    struct stat  st;

    fd = open(name, O_RDONLY);

    if (fd == -1 || fstat(fd, &st) != 0) {
        die(name);
    }

    req.len = (size_t) st.st_size;
    p = malloc(req.len + 1);

    if (p == NULL || read(fd, p, req.len) != st.st_size) {
        die(name);
    }

    req.body = p;
    close(fd);
}


static void
options(int argc, char **argv)
{
    int  c;

    while ((c = getopt(argc, argv, "2c:t:r:n:k:w:p:u:b:")) != -1) {
        switch (c) {
        case '2': req.h2 = 1; break;
        case 'c': nconns = atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'n': first = strtoull(optarg, NULL, 10); break;
        case 'k': nuris = atoi(optarg); break;
        case 'w': nheld = atoi(optarg); break;
        case 'p': req.port = atoi(optarg); break;
        case 'u': req.uri = optarg; break;
        case 'b': load_body(optarg); break;
        default: exit(2);
        }
    }

    if (req.uri == NULL || req.body == NULL || req.port == 0 || nconns < 1
        || nuris < 1 || strlen(req.uri) > 100 || seconds > 600)
    {
        fprintf(stderr, "see the head of load.c\n");
        exit(2);
    }
}


int
main(int argc, char **argv)
{
    int                 i;
    struct epoll_event  ev;

    options(argc, argv);

    epfd = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    ev.events = EPOLLIN;
    ev.data.ptr = NULL;
    took = malloc(REQUESTS * sizeof(uint32_t));
    conns = calloc((size_t) nconns, sizeof(conn_t));

    if (epoll_ctl(epfd, EPOLL_CTL_ADD, timer, &ev) != 0 || took == NULL
        || conns == NULL)
    {
        die("start");
    }

    if (nheld) {
        hold();
        wait_line("held");
    }

    for (i = 0; i < nconns; i++) {
        open_conn(&conns[i]);
    }

    run();
    report();

    if (nheld) {
        wait_line("done");
        errors = 0;
        release();
        printf("{\"errors\":%u}\n", errors);
    }

    return errors != 0;
}
