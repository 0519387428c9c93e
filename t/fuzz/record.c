
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Two workers, a helper and its successors: the input is what they do, in
 * which order, with which bytes.  Without a spoiled frame the accounts come
 * out, the verdicts are jansson's, and each row stands once.  With one, every
 * row in a file still loads.
 *
 *     an act, and a slot of six in its upper bits:
 *
 *     0  begin: file and format, bytes       4  a pass, ms later
 *     1  more bytes                          5  the helper is killed
 *     2  the last bytes                      6  spoil: place (2 bytes), with
 *     3  abort: why                          7  the worker is gone
 */

#include "drain.h"
#include "oracle.h"

#include "ngx_http_llm_capture_scan.h"


#define SLOTS   6
#define V(name) NGX_HTTP_LLM_CAPTURE_SCAN_##name

typedef struct {
    record_t  rec;
    unsigned  open;
    size_t    len;
    uint8_t   body[4096];
} slot_t;

static slot_t    slots[SLOTS];
static worker_t  workers[2];
static writer_t *writer;
static drain_t  *drain;
static unsigned  spoiled;
static uint64_t  expected;      /* rows */


static void
helper(void)
{
    writer = fuzz_writer();
    must(writer != NULL);
    drain = drain_over(writer);
    must(drain != NULL);
}


static void
killed(void)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
}


/* would the row load? */

static int
loads(const uint8_t *body, size_t len, unsigned format)
{
    int           good;
    json_t       *root;
    json_error_t  err;

    root = oracle_load(body, len, &err);

    good = json_is_object(root) && json_object_size(root)
           && oracle_depth(root) <= (format == RAW ? V(LIMIT) : V(WRAPPED))
           && (format == MOON
               || json_is_array(json_object_get(root, "messages")));
    json_decref(root);

    return good;
}


static void
put_more(slot_t *s, worker_t *w, input_t *in, unsigned flags)
{
    size_t          n;
    const uint8_t  *p;

    n = byte(in);

    if (n > 250) {
        n *= 4;
    }

    p = take(in, &n);

    if (s->len + n > sizeof(s->body)) {
        n = sizeof(s->body) - s->len;
    }

    if (worker_put(w, &s->rec, p, n, flags) != 0) {
        s->open = 0;
        return;
    }

    memcpy(s->body + s->len, p, n);
    s->len += n;

    if (flags & END) {
        s->open = 0;
        expected += (uint64_t) loads(s->body, s->len, s->rec.begin.format);
    }
}


static void
begin(slot_t *s, worker_t *w, input_t *in)
{
    unsigned  format;

    format = byte(in) & 1;
    worker_begin(w, &s->rec, format ? second : path, format, now);
    s->open = 1;
    s->len = 0;

    put_more(s, w, in, 0);
}


static void
spoil(worker_t *w, input_t *in)
{
    size_t  at;

    at = word(in, 2) % (zone.ring_size - 32);
    ngx_http_llm_capture_zone_data(&zone, w->n)[at] ^= byte(in);
    spoiled = 1;
}


/* its uploads end there: what stood in its ring is finished by the helper */

static void
gone(unsigned n)
{
    unsigned  i;

    for (i = n; i < SLOTS; i += 2) {
        slots[i].open = 0;
    }

    dead[n] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    now += 10;

    /* with a spoiled ring it may never become free */

    for (i = 0; i < 8 && atomic_load(&hdr_of(n)->owner); i++) {
        (void) ngx_http_llm_capture_drain_pass(drain, now);
        ngx_http_llm_capture_drain_owners(drain);
    }

    must(spoiled || atomic_load(&hdr_of(n)->owner) == 0);

    if (atomic_load(&hdr_of(n)->owner) == 0) {
        worker_claim(&workers[n], n);
    }
}


static void
act(uint8_t what, input_t *in)
{
    slot_t    *s;
    worker_t  *w;
    unsigned   n;

    n = (what >> 3) % SLOTS;
    s = &slots[n];
    w = &workers[n % 2];

    switch (what & 7) {

    case 0:
        if (!s->open && !dead[n % 2]) {
            begin(s, w, in);
        }
        break;

    case 1:
    case 2:
        if (s->open) {
            put_more(s, w, in, (what & 7) == 2 ? END : 0);
        }
        break;

    case 3:
        if (s->open) {
            worker_abort(w, &s->rec, byte(in));
            s->open = 0;
        }
        break;

    case 4:
        now += word(in, 2);
        (void) ngx_http_llm_capture_drain_pass(drain, now);
        break;

    case 5:
        killed();
        helper();
        break;

    case 6:
        spoil(w, in);
        break;

    default:
        gone(n % 2);
    }
}


/* each row loads, and is what it should be; returns how many there are */

static uint64_t
rows(const char *name, unsigned format)
{
    char          *text, *p, *lf;
    size_t         len;
    json_t        *root, *body;
    uint64_t       n;
    json_error_t   err;

    text = slurp(name, &len);

    if (text == NULL) {
        return 0;
    }

    must(len == 0 || text[len - 1] == '\n');

    for (n = 0, p = text; p < text + len; p = lf + 1, n++) {
        lf = memchr(p, '\n', (size_t) (text + len - p));
        root = oracle_load((uint8_t *) p, (size_t) (lf - p), &err);
        must(json_is_object(root));

        if (format == MOON) {
            body = json_object_get(root, "payload");
            must(json_object_size(root)
                 == 2 + (size_t) json_is_string(json_object_get(root, "id")));
            must(json_object_size(body) > 0);
            must(json_real_value(json_object_get(root, "timestamp")) >= 0);

        } else {
            must(json_is_array(json_object_get(root, "messages")));
        }

        json_decref(root);
    }

    free(text);

    return n;
}


/* what is left comes to an end, and the sum is right */

static void
accounts(void)
{
    uint64_t  n;
    unsigned  i;

    for (i = 0; i < SLOTS; i++) {
        if (slots[i].open) {
            worker_abort(&workers[i % 2], &slots[i].rec, C(aborted));
            slots[i].open = 0;
        }
    }

    for (i = 0; ngx_http_llm_capture_drain_pass(drain, now += 1000); i++) {
        must(i < 1000);
    }

    n = rows(path, MOON) + rows(second, RAW);

    if (!spoiled) {
        must(pending() == 0);
        must(ngx_http_llm_capture_drain_pending(drain) == 0);
        must(n == expected && counted(C(recorded)) == n);
        must(counted(C(write_errors)) == 0 && counted(C(failed)) == 0);
    }
}


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void) argc;
    (void) argv;

    fuzz_dir();
    snprintf(second, sizeof(second), "%s/b.jsonl", dir);

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input_t  in;

    in.p = data;
    in.n = size;

    fuzz_dir_empty();
    zone_make(2, 16 * KIB);
    memset(slots, 0, sizeof(slots));
    spoiled = 0;
    expected = 0;

    worker_claim(&workers[0], 0);
    worker_claim(&workers[1], 1);
    helper();

    while (in.n) {
        act(byte(&in), &in);
    }

    accounts();
    killed();
    zone_free();

    return 0;
}
