
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What is told of a zone: what the helper did, and whatever else stands there
 * nothing that does not end, is out of bounds, or is no JSON.
 */

#include "truth.h"

#include <jansson.h>

#include "ngx_http_llm_capture_live.h"
#include "ngx_http_llm_capture_stat.h"


typedef ngx_http_llm_capture_stat_t      stat_t;
typedef ngx_http_llm_capture_stat_row_t  row_t;

static drain_t   *drain;
static writer_t  *writer;
static worker_t   a;
static stat_t    *stat_of;
static uint64_t   seed;
static uint64_t   later;            /* ms that a write takes */


static uint64_t
slow_clock(void)
{
    return now + later;
}


static size_t
name_of(void *ctx, uint32_t row, char *text)
{
    (void) ctx;

    memset(text, 'n', NGX_HTTP_LLM_CAPTURE_TEXT);

    /* one of a full length, one that is not UTF-8 */

    return row == 3 ? NGX_HTTP_LLM_CAPTURE_TEXT
                    : (size_t) sprintf(text, "/dir\"\\\n%s%u",
                                       row == 4 ? "\xff\xc3" : "ü", row);
}


static stat_t *
look(void)
{
    ngx_http_llm_capture_stat_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    conf.now = now;
    conf.wall = WALL;
    conf.helper = 4712;
    conf.zone = 17;
    conf.version = "1";
    conf.nginx = "2";
    conf.name = name_of;

    free(stat_of);
    stat_of = malloc(ngx_http_llm_capture_stat_size(&zone));
    assert_non_null(stat_of);

    ngx_http_llm_capture_stat_read(stat_of, &zone, &conf);

    return stat_of;
}


/* both texts are what they must be, whatever they say */

static void
speak(const stat_t *s)
{
    char    *text, *p, *line;
    size_t   len;
    json_t  *o;

    text = ngx_http_llm_capture_stat_json(s, &len);
    assert_non_null(text);
    assert_int_equal(len, strlen(text));

    o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(o, "queue"), "rings")), zone.nrings);
    json_decref(o);
    free(text);

    text = ngx_http_llm_capture_stat_prometheus(s, &len);
    assert_non_null(text);
    assert_int_equal(len, strlen(text));
    assert_int_equal(text[len - 1], '\n');

    for (line = strtok_r(text, "\n", &p); line; line = strtok_r(NULL, "\n", &p))
    {
        assert_true(strncmp(line, "llm_capture_", 12) == 0
                    || strncmp(line, "# HELP llm_capture_", 19) == 0
                    || strncmp(line, "# TYPE llm_capture_", 19) == 0);
    }

    free(text);
}


static void
told(void **state)
{
    row_t        *r;
    stat_t       *s;
    unsigned      i;
    const char   *text = "{\"a\":1}";

    (void) state;

    later = 25;

    for (i = 0; i < 10; i++) {
        assert_int_equal(worker_text(&a, path, now - 10 * i, text), 0);
    }

    s = look();
    assert_int_equal(s->waits, 0);        /* the first one came just now */
    now += 100;
    s = look();
    assert_int_equal(s->waits, 100);
    assert_int_equal(s->lag, 0);
    assert_true(s->used > 10 * 32 && s->used < 10 * 512);
    assert_int_equal(s->rings[0].used, s->used);
    assert_int_equal(s->rings[0].owner, 4711);
    assert_int_equal(s->total.pending, 10);

    drain_all(drain);
    s = look();

    /* the newest of them, and the time of the write */

    assert_int_equal(s->lag, 100 + later + 1);
    assert_int_equal(s->waits, 0);
    assert_int_equal(s->used, 0);
    assert_int_equal(s->starts, 1);
    assert_int_equal(s->started, WALL - 100);
    assert_int_equal(s->nrows, 2);

    r = &s->rows[0];
    assert_int_equal(r->n[C(recorded)], 10);
    assert_int_equal(r->pending, 0);
    assert_int_equal(r->files, 1);
    assert_string_equal(r->path, path);
    assert_string_equal(r->name, "/dir\"\\?ü0");
    assert_int_equal(r->size, r->n[C(bytes)]);
    assert_int_equal(r->written, 0);      /* to come, for this clock */
    assert_int_equal(s->rows[1].files, 0);
    assert_string_equal(s->rows[1].path, "");
    speak(s);

    /* ten seconds it is a rate, and then no more */

    now += 1000;
    s = look();
    assert_int_equal(s->total.records, 10);
    assert_int_equal(s->total.bytes, s->rows[0].n[C(bytes)]);
    assert_int_equal(s->rows[0].written, WALL - 1000 + later);
    now += 9000;
    assert_int_equal(look()->total.records, 10);
    now += 1000;
    assert_int_equal(look()->total.records, 0);

    /* a second is used again */

    for (i = 0; i < 3; i++) {
        now += 1000 * NGX_HTTP_LLM_CAPTURE_SECONDS;
        worker_text(&a, second, now, text);
        drain_all(drain);
    }

    now += 1000;
    s = look();
    assert_int_equal(s->total.records, 1);
    assert_int_equal(s->rows[0].files, 2);
    assert_string_equal(s->rows[0].path, second);
}


/* a body that came in pieces, and one that is still to come */

static void
pieces(void **state)
{
    char      *body;
    record_t   open, rec;

    (void) state;

    body = body_of(1, 900);

    worker_begin(&a, &open, path, MOON, now - 500);
    worker_put(&a, &open, body, 300, 0);
    worker_begin(&a, &rec, path, MOON, now - 400);
    worker_put(&a, &rec, body, 300, 0);
    worker_put(&a, &rec, body + 300, 300, 0);
    assert_int_equal(look()->waits, 0);

    worker_put(&a, &rec, body + 600, 300, END);
    assert_int_equal(look()->waits, 400);

    drain_all(drain);
    assert_int_equal(look()->waits, 0);

    worker_put(&a, &open, body + 300, 600, END);
    assert_int_equal(look()->waits, 500);
    free(body);
}


static void
failing(void **state)
{
    stat_t  *s;

    (void) state;

    later = 0;
    broken.name = "b.jsonl";
    broken.write_errno = ENOSPC;

    worker_text(&a, second, now, "{\"a\":1}");
    drain_all(drain);
    now += 5;
    worker_text(&a, path, now, "{\"a\":1}");
    drain_all(drain);

    s = look();
    assert_int_equal(s->failed, WALL - 5);
    assert_string_equal(s->error, "ENOSPC");
    assert_string_equal(s->error_name, s->rows[0].name);
    assert_int_equal(s->waits, 5);
    assert_int_equal(s->rows[0].files, 1);
    speak(s);

    now += 1000;
    assert_int_equal(look()->waits, 1005);

    broken.write_errno = 0;
    drain_all(drain);
    s = look();
    assert_int_equal(s->waits, 0);
    assert_int_equal(s->rows[0].files, 2);
    assert_int_equal(s->failed, WALL - 1005);

    ngx_http_llm_capture_zone_live(&zone)->error = 4095;
    assert_string_equal(look()->error, "4095");
}


/* a path that is being changed is not shown in parts, nor waited for */

static void
torn(void **state)
{
    (void) state;

    worker_text(&a, path, now, "{\"a\":1}");
    drain_all(drain);

    ngx_http_llm_capture_zone_live(&zone)->rows[0].changes++;
    assert_string_equal(look()->rows[0].path, "");

    /* its writer is dead; the next one ends it */

    worker_text(&a, second, now, "{\"a\":1}");
    drain_all(drain);
    assert_string_equal(look()->rows[0].path, second);
}


static void
nothing(void **state)
{
    char                              *text;
    size_t                             len;
    stat_t                             s;
    ngx_http_llm_capture_stat_conf_t   conf;

    (void) state;

    memset(&conf, 0, sizeof(conf));
    conf.wall = 5;
    conf.version = "1";
    conf.nginx = "2";

    assert_int_equal(ngx_http_llm_capture_stat_size(NULL), sizeof(stat_t));
    ngx_http_llm_capture_stat_read(&s, NULL, &conf);

    text = ngx_http_llm_capture_stat_json(&s, &len);
    assert_string_equal(text, "{\"capturing\":false,\"version\":\"1\","
                              "\"nginx\":\"2\",\"time\":5}");
    free(text);
    text = ngx_http_llm_capture_stat_prometheus(&s, &len);
    assert_non_null(strstr(text, "\nllm_capture_capturing 0\n"));
    free(text);
}


static uint32_t
rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 20) % n;
}


/* where it reads: all but bodies */

static void
spoil(unsigned n)
{
    size_t  at;

    const struct {
        size_t  at;
        size_t  len;
    } some[] = {
        { 0, zone.live },
        { zone.live, 128 },
        { zone.live, sizeof(ngx_http_llm_capture_live_t) },
        { zone.helper, NGX_HTTP_LLM_CAPTURE_ROWS
                       * sizeof(ngx_http_llm_capture_row_t) },
        { zone.rings, zone.nrings * sizeof(ngx_http_llm_capture_ring_hdr_t) },
        { zone.rows, 4096 },
        { zone.data + rnd(zone.nrings) * zone.ring_size, 4096 }
    };

    unsigned  i;

    while (n--) {
        i = rnd(sizeof(some) / sizeof(some[0]));
        at = some[i].at + rnd((uint32_t) some[i].len);
        zone.base[at] = rnd(3) ? (uint8_t) rnd(256) : rnd(2) ? 0 : 0xff;
    }
}


static void
hostile(void **state)
{
    size_t    k;
    stat_t   *s;
    unsigned  i;

    (void) state;

    alarm(120);

    for (i = 0; i < 600; i++) {
        seed = 5000 + i;
        truth_again();

        if (i % 10 == 0) {
            for (k = 0; k < zone.size; k++) {
                zone.base[k] = i % 20 ? 0xff : (uint8_t) rnd(256);
            }

        } else {
            spoil(1 + rnd(1 << rnd(14)));
        }

        now = rnd(3) ? 1000000 : rnd(20000);
        s = look();
        speak(s);

        assert_true(s->arena_used <= s->arena && s->waits <= now);

        for (k = 0; k < s->nrings; k++) {
            assert_true(s->rings[k].used <= s->ring_size);
        }
    }

    alarm(0);
}


static int
start(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    snprintf(second, sizeof(second), "%s/b.jsonl", dir);
    zone_make(4, 64 * KIB);
    ngx_http_llm_capture_live_start(&zone, now);

    writer = drain_writer();
    drain = drain_with(writer, slow_clock);
    assert_non_null(drain);
    worker_claim(&a, 0);

    return 0;
}


static int
stop(void **state)
{
    free(stat_of);
    stat_of = NULL;

    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
    zone_free();

    return teardown(state);
}


static int
start_truth(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    truth_make();

    return 0;
}


static int
stop_truth(void **state)
{
    free(stat_of);
    stat_of = NULL;
    free(image);
    zone_free();

    return teardown(state);
}


#define STAT(name)  cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        STAT(told),
        STAT(pieces),
        STAT(failing),
        STAT(torn),
        STAT(nothing),
        cmocka_unit_test_setup_teardown(hostile, start_truth, stop_truth)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
