
/*
 * Copyright (C) the llm-capture authors
 */

/* A budget of the disk, and what is left free on it. */

#include "drain_util.h"

#include <dirent.h>


static ngx_http_llm_capture_policy_t  policy;


static void
keep(uint64_t size)
{
    memset(&policy, 0, sizeof(policy));
    policy.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    policy.size = size;

    memset(&keeping, 0, sizeof(keeping));
    keeping.policies = &policy;
    keeping.npolicies = 1;
    keeping.nginx = "1";
    keeping.module = "1";
}


/* one batch each, of n bodies of 1000 bytes */

static void
send(unsigned n)
{
    char  *body;

    while (n--) {
        body = body_of(n, 1000);
        assert_int_equal(worker_send(&a, path, MOON, 1000, body, 1000), 0);
        free(body);
        now += 10;
        (void) drain_pass(drain);
    }
}


static uint64_t
used(void)
{
    DIR            *d;
    char            name[400];
    uint64_t        n;
    struct stat     st;
    struct dirent  *de;

    d = opendir(dir);
    assert_non_null(d);

    for (n = 0; (de = readdir(d)) != NULL; /* void */) {
        snprintf(name, sizeof(name), "%s/%s", dir, de->d_name);

        if (strstr(name, ".jsonl") && stat(name, &st) == 0
            && S_ISREG(st.st_mode))
        {
            n += (uint64_t) st.st_size;
        }
    }

    closedir(d);

    return n;
}


static void
stops(void **state)
{
    (void) state;

    keep(0);
    keeping.max_disk = 20000;
    successor();

    send(50);
    assert_in_range(counted(C(recorded)), 15, 19);
    assert_counted(disk_limit, 50 - counted(C(recorded)));
    assert_true(used() <= 20000 + 200);

    /* and goes on when there is room */

    assert_int_equal(truncate(path, 0), 0);
    now += 20000;
    (void) drain_pass(drain);
    send(3);
    assert_counted(disk_limit, 0 + counted(C(seen)) - counted(C(recorded)));
    assert_true(counted(C(recorded)) >= 18);
}


static void
oldest_goes(void **state)
{
    (void) state;

    keep(4000);
    keeping.max_disk = 30000;
    keeping.drop_oldest = 1;
    successor();

    send(200);
    assert_counted(recorded, 200);
    assert_counted(disk_limit, 0);
    assert_true(used() <= 30000);
    assert_true(used() >= 20000);
    assert_true(lines_with("the oldest segment was removed") > 5);
}


/* what stands in the directory and is not ours stays, and is not counted */

static void
of_others(void **state)
{
    int       fd;
    char      name[6][200];
    unsigned  i;

    (void) state;

    for (i = 0; i < 6; i++) {
        snprintf(name[i], sizeof(name[i]), "%s/%s", dir,
                 ((const char *[]) {
                     "b.20200101T000000.000Z.jsonl",
                     "aa.20200101T000000.000Z.jsonl",
                     "a.jsonl.20200101T000000.000Z.jsonl",
                     "a.20200101T000000.000Z.jsonl.gz",
                     "a.20200101T000000.000Z.txt",
                     "a.2020.jsonl" })[i]);
        fd = open(name[i], O_WRONLY|O_CREAT, 0600);
        assert_int_equal(ftruncate(fd, i == 3 ? 15000 : 100000), 0);
        close(fd);
    }

    keep(4000);
    keeping.max_disk = 20000;
    keeping.drop_oldest = 1;
    successor();

    send(20);
    assert_counted(recorded, 20);

    for (i = 0; i < 6; i++) {
        assert_int_equal(access(name[i], F_OK), i == 3 ? -1 : 0);
    }
}


/* another one that would be larger than the budget is counted */

static void
too_small(void **state)
{
    (void) state;

    keep(4000);
    keeping.max_disk = 500;
    keeping.drop_oldest = 1;
    successor();

    send(3);
    assert_counted(disk_limit, 3);
}


static void
left_free(void **state)
{
    (void) state;

    keep(0);
    keeping.free_percent = 100;
    keeping.free_most = UINT64_MAX;
    successor();
    send(2);
    assert_counted(disk_limit, 2);

    /* at most so much of a large disk */

    keeping.free_most = 1;
    successor();
    send(2);
    assert_counted(recorded, 2);

    keeping.min_free = UINT64_MAX / 2;
    successor();
    send(2);
    assert_counted(disk_limit, 4);
}


static int
unset(void **state)
{
    memset(&keeping, 0, sizeof(keeping));

    return stop(state);
}


#define DISK(name)  cmocka_unit_test_setup_teardown(name, start, unset)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DISK(stops),
        DISK(oldest_goes),
        DISK(of_others),
        DISK(too_small),
        DISK(left_free),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
