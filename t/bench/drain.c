
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * usage: drain BODY RECORDS ROUNDS DIR
 *
 * The helper's work without nginx: the drain and the writer over a queue that
 * is full of RECORDS copies of a body, against one writev() per batch of the
 * same lines from memory to a file of the same directory, and against the scan
 * alone.  Turns alternate.  Prints a line of JSON: nanoseconds of processor
 * time, by round.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "ngx_http_llm_capture_drain.h"
#include "ngx_http_llm_capture_record.h"
#include "ngx_http_llm_capture_scan.h"


#define BATCH        NGX_HTTP_LLM_CAPTURE_BATCH
#define BATCH_BYTES  (4 << 20)
#define HEAD         "{\"timestamp\":0,\"payload\":"


static ngx_http_llm_capture_zone_t     zone;
static ngx_http_llm_capture_ring_t     ring;
static ngx_http_llm_capture_writer_t  *writer;
static ngx_http_llm_capture_drain_t   *drain;

static char      path[PATH_MAX], plain[PATH_MAX];
static uint8_t  *body, *copies;
static size_t    len;
static unsigned  records;
static uint64_t  id = 1, clock_ms = 1000000;


static void
die(const char *what)
{
    perror(what);
    exit(2);
}


/* of the processor: what else runs on it does not count */

static uint64_t
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


static void
say(void *ctx, int level, int err, const char *text)
{
    (void) ctx;

    fprintf(stderr, "drain: %d %s (%s)\n", level, text, strerror(err));
}


static int
is_dead(void *ctx, uint32_t n)
{
    (void) ctx;
    (void) n;

    return 0;
}


static uint64_t
recorded(void)
{
    return ngx_http_llm_capture_zone_helper(&zone)[0]
           .n[NGX_HTTP_LLM_CAPTURE_C_recorded];
}


static void
open_zone(void)
{
    size_t                              queue;
    uint64_t                            owner;
    ngx_http_llm_capture_ring_hdr_t    *hdr;
    ngx_http_llm_capture_drain_conf_t   conf;
    ngx_http_llm_capture_writer_conf_t  wconf;

    queue = records * (ngx_http_llm_capture_record_size(len, PATH_MAX, 1)
                       + 64) + (4 << 20);
    queue = (queue + 4095) / 4096 * 4096;

    if (ngx_http_llm_capture_zone_layout(&zone, 1, queue, 4096) != 0) {
        die("zone");
    }

    zone.base = mmap(NULL, zone.size, PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);

    if (zone.base == MAP_FAILED) {
        die("mmap()");
    }

    ngx_http_llm_capture_zone_format(&zone, 1);
    (void) ngx_http_llm_capture_zone_template(&zone, "t", 1, 0);

    hdr = ngx_http_llm_capture_zone_ring(&zone, 0);
    owner = 0;
    atomic_compare_exchange_strong(&hdr->owner, &owner, 1);
    ngx_http_llm_capture_ring_open(&ring, hdr,
                                   ngx_http_llm_capture_zone_data(&zone, 0),
                                   zone.ring_size);

    memset(&wconf, 0, sizeof(wconf));
    wconf.log = say;
    writer = ngx_http_llm_capture_writer_create(&wconf);

    memset(&conf, 0, sizeof(conf));
    conf.zone = &zone;
    conf.writer = writer;
    conf.dead = is_dead;
    conf.log = say;
    drain = ngx_http_llm_capture_drain_create(&conf, clock_ms);

    if (writer == NULL || drain == NULL) {
        die("drain");
    }
}


static void
fill(void)
{
    unsigned                       i;
    struct iovec                   iov;
    ngx_http_llm_capture_record_t  rec;

    for (i = 0; i < records; i++) {
        ngx_http_llm_capture_count(ngx_http_llm_capture_zone_rows(&zone, 0),
                                   NGX_HTTP_LLM_CAPTURE_C_seen, 1);

        memset(&rec, 0, sizeof(rec));
        rec.id = id++;
        rec.path = path;
        rec.begin.wall = 1700000000000 + clock_ms;
        rec.begin.mono = clock_ms;
        rec.begin.hash = ngx_http_llm_capture_zone_hash("t", 1, 0);
        rec.begin.path_len = (uint16_t) strlen(path);
        iov.iov_base = body;
        iov.iov_len = len;

        if (ngx_http_llm_capture_record_put(&ring, &rec, &iov, 1,
                                            NGX_HTTP_LLM_CAPTURE_END) != 0)
        {
            fprintf(stderr, "the ring is full\n");
            exit(2);
        }
    }

    ngx_http_llm_capture_ring_publish(&ring);
}


static uint64_t
turn_drain(void)
{
    uint64_t  start, spent, before;

    fill();
    before = recorded();
    start = now();

    while (ngx_http_llm_capture_drain_pass(drain, clock_ms)) { /* void */ }

    spent = now() - start;

    if (recorded() - before != records) {
        fprintf(stderr, "%llu of %u recorded\n",
                (unsigned long long) (recorded() - before), records);
        exit(2);
    }

    if (truncate(path, 0) != 0) {
        die("truncate()");
    }

    clock_ms += 10;

    return spent;
}


/* copies of the body stand one behind the other, as in a ring */

static uint64_t
turn_plain(void)
{
    int            fd;
    size_t         done, want;
    unsigned       i, n, lines;
    uint64_t       start, spent;
    struct iovec   iov[IOV_MAX];
    static char    head[] = HEAD, tail[] = "}\n";

    fd = open(plain, O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC, 0600);

    if (fd == -1) {
        die(plain);
    }

    start = now();

    for (i = 0; i < records; ) {
        lines = 0;
        want = 0;

        for (n = 0; n + 3 <= IOV_MAX && i < records && lines < BATCH
                    && want < BATCH_BYTES; i++, lines++)
        {
            iov[n].iov_base = head;
            iov[n++].iov_len = sizeof(HEAD) - 1;
            iov[n].iov_base = copies + i * len;
            iov[n++].iov_len = len;
            iov[n].iov_base = tail;
            iov[n++].iov_len = 2;
            want += sizeof(HEAD) - 1 + len + 2;
        }

        done = (size_t) writev(fd, iov, (int) n);

        if (done != want) {
            die("writev()");
        }
    }

    spent = now() - start;
    close(fd);

    if (truncate(plain, 0) != 0) {
        die("truncate()");
    }

    return spent;
}


static uint64_t
turn_scan(void)
{
    unsigned                     i, bad;
    uint64_t                     start;
    ngx_http_llm_capture_scan_t  s;

    start = now();

    for (bad = 0, i = 0; i < records; i++) {
        ngx_http_llm_capture_scan_init(&s, NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED,
                                       0);
        (void) ngx_http_llm_capture_scan_feed(&s, copies + i * len, len);
        bad += ngx_http_llm_capture_scan_end(&s) != 0;
    }

    if (bad) {
        fprintf(stderr, "%u refused\n", bad);
        exit(2);
    }

    return now() - start;
}


static void
load_body(const char *name)
{
    int          fd;
    unsigned     i;
    struct stat  st;

    fd = open(name, O_RDONLY);

    if (fd == -1 || fstat(fd, &st) != 0) {
        die(name);
    }

    len = (size_t) st.st_size;
    body = malloc(len);
    copies = malloc(len * records);

    if (body == NULL || copies == NULL || read(fd, body, len) != st.st_size) {
        die(name);
    }

    for (i = 0; i < records; i++) {
        memcpy(copies + i * len, body, len);
    }
}


static void
list(const char *name, uint64_t *v, unsigned n, const char *end)
{
    unsigned  i;

    printf("\"%s\":[", name);

    for (i = 0; i < n; i++) {
        printf("%s%llu", i ? "," : "", (unsigned long long) v[i]);
    }

    printf("]%s", end);
}


int
main(int argc, char **argv)
{
    unsigned   i, rounds;
    uint64_t  *drained, *written, *scanned;

    if (argc != 5) {
        fprintf(stderr, "usage: drain BODY RECORDS ROUNDS DIR\n");
        return 2;
    }

    records = (unsigned) atoi(argv[2]);
    rounds = (unsigned) atoi(argv[3]);
    snprintf(path, sizeof(path), "%s/drain.jsonl", argv[4]);
    snprintf(plain, sizeof(plain), "%s/plain.jsonl", argv[4]);

    load_body(argv[1]);
    open_zone();

    drained = calloc(rounds, sizeof(uint64_t));
    written = calloc(rounds, sizeof(uint64_t));
    scanned = calloc(rounds, sizeof(uint64_t));

    /* fresh pages, of both */
    (void) turn_drain();
    (void) turn_plain();

    for (i = 0; i < rounds; i++) {
        drained[i] = turn_drain();
        written[i] = turn_plain();
        scanned[i] = turn_scan();
    }

    printf("{");
    list("drain", drained, rounds, ",");
    list("writev", written, rounds, ",");
    list("scan", scanned, rounds, "}\n");

    return 0;
}
