
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Rows that need the answer, each exactly once, though the helper dies at any
 * place: those of requests in a ring, and of slow ones in the arena.
 */

#include "crash_points.h"
#include "ngx_http_llm_capture_blocks.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_reply.h"


#define TRACE  NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE
#define STEPS  20
#define MOST   64

#define ALIVE  1000
#define GONE   1001


static void
begin(unsigned w, record_t *rec, uint64_t uid, uint32_t pid)
{
    spec = uid % 2 ? "=alice" : NULL;
    worker_begin(&sh->w[w], rec, sh->path[0], MOON, ++sh->mono);

    rec->begin.format = TRACE;
    rec->begin.flags = NGX_HTTP_LLM_CAPTURE_HASH_IDS;
    rec->begin.uid = uid;
    rec->begin.pid = pid;
    sh->k++;
}


static void
give(unsigned w, record_t *rec, const char *text, size_t n, unsigned flags)
{
    if (worker_put(&sh->w[w], rec, text, n, flags) != 0) {
        _exit(3);
    }
}


static unsigned
blocks_of(uint64_t uid)
{
    return 1 + uid % 8;
}


/* a prompt of so many blocks and a bit */

static char *
prompt(uint64_t uid)
{
    char    *text;
    size_t   n;

    n = blocks_of(uid) * NGX_HTTP_LLM_CAPTURE_HASH_BYTES + 10;
    text = malloc(n + 20);

    if (text == NULL) {
        _exit(3);
    }

    memcpy(text, "{\"prompt\":\"", 11);
    memset(text + 11, (int) ('a' + uid), n);
    memcpy(text + 11 + n, "\"}", 3);

    return text;
}


static void
ask(unsigned w, uint64_t uid, uint32_t pid)
{
    char      *text;
    record_t   rec;

    text = prompt(uid);
    begin(w, &rec, uid, pid);
    give(w, &rec, text, strlen(text), END);
    free(text);
}


static void
answer(unsigned w, uint64_t uid, unsigned flags)
{
    char      text[200];
    record_t  rec;
    struct {
        ngx_http_llm_capture_reply_t  reply;
        char                          text[200];
    } all;

    memset(&all, 0, sizeof(all));

    snprintf(text, sizeof(text), "{\"usage\":{\"prompt_tokens\":%u,"
             "\"completion_tokens\":%u}}", blocks_of(uid) * 512,
             (unsigned) uid);
    memcpy(all.text, text, strlen(text));

    all.reply.status = 200;
    all.reply.bytes = strlen(text);
    all.reply.head = (uint32_t) strlen(text);
    all.reply.flags = NGX_HTTP_LLM_CAPTURE_REPLY_JSON
                      |NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE|flags;

    memset(&rec, 0, sizeof(rec));
    rec.id = uid | NGX_HTTP_LLM_CAPTURE_ID_OUTCOME;
    rec.path = sh->path[0];
    rec.begin.uid = uid;
    rec.begin.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    rec.begin.path_len = (uint16_t) strlen(rec.path);
    rec.begin.format = NGX_HTTP_LLM_CAPTURE_OUTCOMES;

    if (ngx_http_llm_capture_record_put(&sh->w[w].ring, &rec,
            &(struct iovec) { &all, sizeof(all.reply) + strlen(text) }, 1,
            END) != 0)
    {
        _exit(3);
    }

    ngx_http_llm_capture_ring_publish(&sh->w[w].ring);
}


static int
do_step(unsigned step)
{
    char      *text;
    uint64_t   uid;

    switch (step) {

    case 0:
        for (uid = 1; uid <= 4; uid++) {
            ask(uid % 2, uid, ALIVE);
        }

        return 1;

    case 1:
        /* before its request is read, in a ring that is read first */
        answer(0, 5, 0);
        ask(1, 5, ALIVE);
        answer(1, 1, 0);
        answer(0, 2, 0);
        return 1;

    case 2:
        answer(1, 3, NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED);
        return 1;

    case 3:
        /* their worker is gone: one has answered before */
        ask(1, 6, GONE);
        ask(1, 7, GONE);
        answer(1, 6, 0);
        return 1;

    case 4:
        /* a slow one, which has to leave its ring */
        text = prompt(8);
        begin(2, &sh->slow[0], 8, ALIVE);
        give(2, &sh->slow[0], text, 10, 0);
        free(text);

        for (uid = 9; uid < 15; uid++) {
            ask(2, uid, ALIVE);
        }

        return 1;

    case 5:
        for (uid = 9; uid < 15; uid++) {
            answer(uid % 2, uid, 0);
        }

        return 1;

    case 6:
        text = prompt(8);
        give(2, &sh->slow[0], text + 10, strlen(text + 10), END);
        answer(2, 8, 0);
        free(text);
        return 1;

    case 7:
        answer(1, 4, 0);
        return 1;

    default:
        uid = 7 + step;
        ask(step % 3, uid, ALIVE);
        answer(1, uid, 0);
        return 1;
    }
}


static void
each_once(void)
{
    char      *got, *p, *ids;
    size_t     len;
    unsigned   n, in, out, k, commas;
    uint8_t    found[MOST];

    got = slurp(sh->path[0], &len);
    assert_non_null(got);

    memset(found, 0, sizeof(found));

    for (n = 0, p = got; *p; p = strchr(p, '\n') + 1, n++) {
        assert_int_equal(sscanf(p, "{\"timestamp\":%*u,\"input_length\":%u,"
                                "\"output_length\":%u,", &in, &out), 2);
        assert_true(out < MOST);
        assert_int_equal(in, blocks_of(out) * 512);

        if (found[out]++) {
            fail_msg("row %u is there twice", out);
        }

        ids = strchr(p, '[');
        commas = 0;

        for (k = 0; ids[k] != ']'; k++) {
            commas += ids[k] == ',';
        }

        assert_int_equal(commas, blocks_of(out) - 1);
        assert_int_equal(strncmp(ids + k, "],\"session_id\":\"", 16) == 0,
                         out % 2);
    }

    free(got);

    assert_int_equal(pending(), 0);
    assert_int_equal(counted(C(seen)), sh->k);
    assert_int_equal(counted(C(recorded)), n);
    assert_int_equal(counted(C(bytes)), len);
    assert_int_equal(counted(C(answers)), 0);
    assert_int_equal(counted(C(no_outcome)), 1);
    assert_int_equal(counted(C(aborted)), 1);
    assert_int_equal(counted(C(uncertain)), 0);
    assert_int_equal(n, 24);

    /* nothing is left in the arena */

    for (k = 0; k < NGX_HTTP_LLM_CAPTURE_CHAINS; k++) {
        assert_int_equal(ngx_http_llm_capture_zone_chain(&zone, k)->state, 0);
    }
}


/* the rows of the one that died have been made with that of the one before */

static void
another_key(void **state)
{
    (void) state;
    new_key = 1;
    every_point(0, do_step, STEPS, each_once);
    new_key = 0;
}


static void
points(void **state)
{
    (void) state;
    every_point(0, do_step, STEPS, each_once);
}


static void
points_in_pieces(void **state)
{
    (void) state;
    every_point(1, do_step, STEPS, each_once);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(another_key),
        CRASH(points),
        CRASH(points_in_pieces),
    };

    /* a block each, of those that wait */

    nrings = RINGS;

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("trace crash", tests, NULL, NULL);
}
