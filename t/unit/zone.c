
/*
 * Copyright (C) the llm-capture authors
 */

/* the layout of the shared memory, the templates and the sums */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "../../src/ngx_http_llm_capture_control.h"
#include "../../src/ngx_http_llm_capture_zone.h"


#define LINE   NGX_HTTP_LLM_CAPTURE_LINE
#define MIB    (1024ULL * 1024)
#define C(x)   NGX_HTTP_LLM_CAPTURE_C_##x


typedef struct {
    size_t  at;
    size_t  size;
    size_t  align;
} part_t;


static ngx_http_llm_capture_zone_t
make(uint32_t nrings, uint64_t queue)
{
    ngx_http_llm_capture_zone_t  z;

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, nrings, queue,
                                                      4096), 0);
    assert_null(z.base);

    z.base = mmap(NULL, z.size, PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    assert_true(z.base != MAP_FAILED);

    ngx_http_llm_capture_zone_format(&z, 1);

    return z;
}


/* what stands where, each part by the function that finds it */

static void
check(uint32_t nrings, uint64_t queue, size_t page)
{
    size_t                       i, end;
    uint64_t                     rings;
    ngx_http_llm_capture_zone_t  z;

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, nrings, queue, page),
                     0);
    z.base = NULL;

#define at(p)  ((size_t) ((uint8_t *) (p) - z.base))

    const part_t  parts[] = {
        { at(ngx_http_llm_capture_zone_hdr(&z)),
          sizeof(ngx_http_llm_capture_zone_hdr_t), page },
        { at(ngx_http_llm_capture_zone_live(&z)),
          sizeof(ngx_http_llm_capture_live_t), LINE },
        { at(ngx_http_llm_capture_zone_control(&z)),
          sizeof(ngx_http_llm_capture_control_t), LINE },
        { at(ngx_http_llm_capture_zone_intent(&z)),
          sizeof(ngx_http_llm_capture_intent_t), LINE },
        { at(ngx_http_llm_capture_zone_helper(&z)),
          NGX_HTTP_LLM_CAPTURE_ROWS * sizeof(ngx_http_llm_capture_row_t),
          LINE },
        { at(ngx_http_llm_capture_zone_ring(&z, 0)),
          nrings * sizeof(ngx_http_llm_capture_ring_hdr_t), LINE },
        { at(ngx_http_llm_capture_zone_rows(&z, 0)),
          at(ngx_http_llm_capture_zone_rows(&z, nrings + 1))
          - at(ngx_http_llm_capture_zone_rows(&z, 0)), LINE },
        { at(ngx_http_llm_capture_zone_chain(&z, 0)),
          NGX_HTTP_LLM_CAPTURE_CHAINS * sizeof(ngx_http_llm_capture_chain_t),
          LINE },
        { at(ngx_http_llm_capture_zone_next(&z, 0)),
          z.nblocks * sizeof(uint32_t), LINE },
        { at(ngx_http_llm_capture_zone_wait(&z, 0)),
          NGX_HTTP_LLM_CAPTURE_WAITS * sizeof(ngx_http_llm_capture_wait_t),
          LINE },
        { at(ngx_http_llm_capture_zone_account(&z, 0)),
          NGX_HTTP_LLM_CAPTURE_ACCOUNTS
          * sizeof(ngx_http_llm_capture_account_t), LINE },
        { at(ngx_http_llm_capture_zone_gaps(&z, 0)),
          NGX_HTTP_LLM_CAPTURE_ROWS * sizeof(ngx_http_llm_capture_gaps_t),
          LINE },
        { at(ngx_http_llm_capture_zone_data(&z, 0)),
          nrings * z.ring_size, page },
        { at(ngx_http_llm_capture_zone_block(&z, 0)),
          (size_t) z.nblocks * NGX_HTTP_LLM_CAPTURE_BLOCK, page },
    };

    end = 0;

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        assert_int_equal(parts[i].at % parts[i].align, 0);
        assert_true(parts[i].at >= end);
        /* no more than the fill up to a page between them */
        assert_true(parts[i].at - end < page);
        end = parts[i].at + parts[i].size;
    }

    assert_int_equal(z.size, end);

    /* a ring is whole pages, and all that the queue gives */

    rings = (uint64_t) nrings * z.ring_size;
    assert_int_equal(z.ring_size % page, 0);
    assert_true(rings <= queue && queue - rings < (uint64_t) nrings * page
                                                  + nrings);
    assert_int_equal(at(ngx_http_llm_capture_zone_data(&z, nrings - 1)),
                     z.data + rings - z.ring_size);

    /* the arena is a quarter of both, to a block */

    assert_in_range((size_t) z.nblocks * NGX_HTTP_LLM_CAPTURE_BLOCK,
                    rings / 3, rings / 3 + NGX_HTTP_LLM_CAPTURE_BLOCK);
}


static void
test_layout(void **state)
{
    uint32_t  workers, n;
    uint64_t  queue;

    (void) state;

    for (workers = 1; workers <= 256; workers++) {
        n = 2 * workers + 14;
        queue = n * (MIB + 256 * 1024);

        check(n, queue > 256 * MIB ? queue : 256 * MIB, 4096);
        check(n, 1024 * MIB, 4096);
        check(n, 1024 * MIB, 65536);
        check(n, (uint64_t) n * 4096, 4096);
        check(n, n * 65536ULL + 12345, 16384);
    }

    check(1, 4096, 4096);
    check(526, 526 * 1024 * MIB, 4096);
}


static void
test_refused(void **state)
{
    ngx_http_llm_capture_zone_t  z;

    (void) state;

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 0, MIB, 4096), -1);
    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 16, 0, 4096), -1);
    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 16, 16 * 4096 - 1,
                                                      4096), -1);
    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 16, 16 * 4096,
                                                      4096), 0);

    /* a unit is counted in 32 bits */

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 1,
                                                      64 * 1024 * MIB, 4096),
                     0);
    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 1,
                                                64 * 1024 * MIB + 4096, 4096),
                     -1);
}


/* words with different writers never share a line of the cache */

static void
test_lines(void **state)
{
    uint32_t                          i;
    ngx_http_llm_capture_zone_t       z;
    ngx_http_llm_capture_ring_hdr_t  *h;

    (void) state;

    z = make(16, 256 * MIB);

#define line_of(p)  ((uintptr_t) (p) / LINE)

    for (i = 0; i < 16; i++) {
        h = ngx_http_llm_capture_zone_ring(&z, i);

        assert_int_equal(line_of(&h->head), line_of(&h->want));
        assert_int_equal(line_of(&h->head), line_of(&h->deciding));
        assert_int_equal(line_of(&h->tail), line_of(&h->punch));
        assert_int_equal(line_of(&h->tail), line_of(&h->last_id));
        assert_int_equal(line_of(&h->owner), line_of(&h->closed));
        assert_int_equal(line_of(&h->tail), line_of(&h->head) + 1);
        assert_int_equal(line_of(&h->owner), line_of(&h->head) + 2);
        assert_int_equal(line_of(h + 1), line_of(&h->head) + 3);

        assert_true(line_of((uint8_t *) ngx_http_llm_capture_zone_rows(&z,
                                                                 i + 1) - 1)
                    < line_of(ngx_http_llm_capture_zone_rows(&z, i + 1)));
    }

    munmap(z.base, z.size);
}


static void
test_templates(void **state)
{
    char                              text[300];
    uint32_t                          i, k;
    ngx_http_llm_capture_zone_t       z;
    ngx_http_llm_capture_zone_hdr_t  *h;

    (void) state;

    z = make(4, MIB);
    h = ngx_http_llm_capture_zone_hdr(&z);

    assert_int_equal(ngx_http_llm_capture_zone_row(&z, 0),
                     NGX_HTTP_LLM_CAPTURE_TEMPLATES);

    for (i = 0; i < 70; i++) {
        snprintf(text, sizeof(text), "/var/log/%u.jsonl", i / 2);

        /* one text with two formats is two destinations */

        k = ngx_http_llm_capture_zone_template(&z, text, strlen(text), i % 2);
        assert_int_equal(k, i < NGX_HTTP_LLM_CAPTURE_TEMPLATES
                            ? i : NGX_HTTP_LLM_CAPTURE_TEMPLATES);

        /* the same again is the same row, and nothing is appended */

        assert_int_equal(ngx_http_llm_capture_zone_template(&z, text,
                                                     strlen(text), i % 2), k);
        assert_int_equal(h->ntemplates,
                         k < NGX_HTTP_LLM_CAPTURE_TEMPLATES ? i + 1 : 64);
        assert_int_equal(ngx_http_llm_capture_zone_row(&z,
                             ngx_http_llm_capture_zone_hash(text, strlen(text),
                                                            i % 2)), k);
    }

    /* none of the old ones has moved */

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_TEMPLATES; i++) {
        snprintf(text, sizeof(text), "/var/log/%u.jsonl", i / 2);

        assert_int_equal(ngx_http_llm_capture_zone_template(&z, text,
                                                     strlen(text), i % 2), i);
        assert_int_equal(h->templates[i].format, i % 2);
        assert_int_equal(h->templates[i].len, strlen(text));
        assert_memory_equal(h->templates[i].text, text, strlen(text));
    }

    munmap(z.base, z.size);
}


/* a text longer than the table keeps is still told apart, by its hash */

static void
test_long_template(void **state)
{
    char                              text[4096];
    ngx_http_llm_capture_zone_t       z;
    ngx_http_llm_capture_zone_hdr_t  *h;

    (void) state;

    z = make(4, MIB);
    h = ngx_http_llm_capture_zone_hdr(&z);
    memset(text, 'x', sizeof(text));

    assert_int_equal(ngx_http_llm_capture_zone_template(&z, text, 4096, 0), 0);
    assert_int_equal(ngx_http_llm_capture_zone_template(&z, text, 4095, 0), 1);
    assert_int_equal(ngx_http_llm_capture_zone_template(&z, text, 256, 0), 2);
    assert_int_equal(ngx_http_llm_capture_zone_template(&z, text, 4096, 0), 0);
    assert_int_equal(h->templates[0].len, NGX_HTTP_LLM_CAPTURE_TEXT);
    assert_int_equal(h->templates[2].len, 256);
    assert_int_equal(h->templates[1].text[0], 'x');
    assert_int_equal(h->templates[3].hash, 0);

    /* a spoiled number of templates stays within the table */

    h->ntemplates = 0xffffffff;
    assert_int_equal(ngx_http_llm_capture_zone_row(&z, 12345),
                     NGX_HTTP_LLM_CAPTURE_TEMPLATES);

    munmap(z.base, z.size);
}


static void
test_names(void **state)
{
    unsigned  c;

    (void) state;

    for (c = 0; c < C(max); c++) {
        assert_non_null(ngx_http_llm_capture_counter_names[c]);
    }

    assert_string_equal(ngx_http_llm_capture_counter_names[C(seen)], "seen");
    assert_string_equal(ngx_http_llm_capture_counter_names[C(recorded)],
                        "recorded");
    assert_string_equal(ngx_http_llm_capture_counter_names[C(write_errors)],
                        "write_errors");
    assert_int_equal(C(recorded) + 2, C(write_errors));
}


/* each counter of each block goes into the sum of its own row, once */

static void
test_sum(void **state)
{
    uint32_t                     i, row, c;
    uint64_t                     sum[C(max)], want;
    ngx_http_llm_capture_zone_t  z;

    (void) state;

    z = make(5, MIB);

    for (i = 0; i <= 6; i++) {
        for (row = 0; row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {
            for (c = 0; c < C(max); c++) {
                want = 1 + c + 100 * row + (100000ULL << i);

                if (i == 6) {
                    ngx_http_llm_capture_count(
                        ngx_http_llm_capture_zone_helper(&z) + row, c, want);

                } else if (i == 5) {
                    ngx_http_llm_capture_count_shared(
                        ngx_http_llm_capture_zone_rows(&z, i) + row, c, want);

                } else {
                    ngx_http_llm_capture_count(
                        ngx_http_llm_capture_zone_rows(&z, i) + row, c,
                        want - 1);
                    ngx_http_llm_capture_count(
                        ngx_http_llm_capture_zone_rows(&z, i) + row, c, 1);
                }
            }
        }
    }

    for (row = 0; row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {
        memset(sum, 0xff, sizeof(sum));
        ngx_http_llm_capture_zone_sum(&z, row, sum);

        for (c = 0; c < C(max); c++) {
            assert_int_equal(sum[c], 7 * (1 + c + 100 * row)
                                     + 100000ULL * 127);
        }
    }

    munmap(z.base, z.size);
}


static void
test_pending(void **state)
{
    unsigned  c;
    uint64_t  sum[C(max)];

    (void) state;

    memset(sum, 0, sizeof(sum));
    assert_int_equal(ngx_http_llm_capture_zone_pending(sum), 0);

    sum[C(seen)] = 1000;
    assert_int_equal(ngx_http_llm_capture_zone_pending(sum), 1000);

    for (c = C(seen) + 1; c <= C(recorded); c++) {
        sum[c] = c;
        assert_int_equal(ngx_http_llm_capture_zone_pending(sum),
                         1000 - c * (c + 1) / 2);
    }

    /* no terms of the sum */

    sum[C(bytes)] = sum[C(write_errors)] = 500;
    assert_int_equal(ngx_http_llm_capture_zone_pending(sum),
                     1000 - C(recorded) * (C(recorded) + 1) / 2);

    sum[C(seen)] = 5;
    assert_int_equal(ngx_http_llm_capture_zone_pending(sum), 0);
}


/*
 * A reader in between finds too much pending, never too little: what became
 * of a request is read before how many were seen.
 */

static void
test_sum_in_between(void **state)
{
    int                          i;
    pid_t                        pid;
    uint64_t                     sum[C(max)], n;
    ngx_http_llm_capture_zone_t  z;

    (void) state;

    z = make(5, MIB);
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);

        for (n = 0; ; n++) {
            ngx_http_llm_capture_count(ngx_http_llm_capture_zone_rows(&z, 2),
                                       C(seen), 1);
            ngx_http_llm_capture_count(ngx_http_llm_capture_zone_rows(&z, 2),
                                       n % 2 ? C(unmatched) : C(bad_path), 1);
            ngx_http_llm_capture_count_shared(
                ngx_http_llm_capture_zone_rows(&z, 5), C(seen), 1);
            ngx_http_llm_capture_count_shared(
                ngx_http_llm_capture_zone_rows(&z, 5), C(queue_full), 1);
        }
    }

    n = 0;
    sum[C(seen)] = 0;

    for (i = 0; i < 300000 || sum[C(seen)] < 1000000; i++) {
        ngx_http_llm_capture_zone_sum(&z, 0, sum);
        n += sum[C(seen)] < sum[C(unmatched)] + sum[C(bad_path)]
                            + sum[C(queue_full)];
    }

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);

    assert_int_equal(n, 0);

    munmap(z.base, z.size);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_long_template),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_sum_in_between),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("zone", tests, NULL, NULL);
}
