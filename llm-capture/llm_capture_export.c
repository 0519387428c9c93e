
/*
 * Copyright (C) the llm-capture authors
 */

/* what AIPerf leaves of a run beside its summary */

#define _GNU_SOURCE

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


#define LLM_CAPTURE_GOALS  16


typedef struct {
    char               *metric;
    double              most;
} llm_capture_goal_t;


/* "METRIC:MS METRIC:MS" */

static unsigned
llm_capture_goals(char *text, llm_capture_goal_t *goal)
{
    char      *p, *save, *end;
    unsigned   n;

    for (n = 0, p = strtok_r(text, " ,", &save); p;
         p = strtok_r(NULL, " ,", &save))
    {
        end = strchr(p, ':');

        if (end == NULL || n == LLM_CAPTURE_GOALS) {
            llm_capture_die("--goodput: \"METRIC:MS ...\", %d at most",
                            LLM_CAPTURE_GOALS);
        }

        *end = '\0';
        goal[n].metric = p;
        goal[n++].most = strtod(end + 1, NULL);
    }

    return n;
}


static unsigned
llm_capture_met(json_t *metrics, const llm_capture_goal_t *goal, unsigned n)
{
    json_t    *v;
    unsigned   i;

    for (i = 0; i < n; i++) {
        v = json_object_get(json_object_get(metrics, goal[i].metric),
                            "value");

        if (!json_is_number(v) || json_number_value(v) > goal[i].most) {
            return 0;
        }
    }

    return 1;
}


void
llm_capture_goodput(const char *dir, const char *goals, uint64_t *good,
    uint64_t *rows)
{
    char                *text, *name;
    size_t               whole;
    json_t              *row;
    unsigned             n;
    llm_capture_str_t    line;
    llm_capture_goal_t   goal[LLM_CAPTURE_GOALS];
    llm_capture_file_t  *f;

    text = llm_capture_format("%s", goals);
    n = llm_capture_goals(text, goal);

    name = llm_capture_format("%s/profile_export.jsonl", dir);
    f = llm_capture_open(name, 0);

    for (*good = *rows = 0; llm_capture_line(f, &line, &whole) == 1;
         ++*rows)
    {
        row = json_loadb((const char *) line.p, line.n, 0, NULL);
        *good += llm_capture_met(json_object_get(row, "metrics"), goal, n);
        json_decref(row);
    }

    llm_capture_close(f);
    free(name);
    free(text);
}


unsigned
llm_capture_logged(const char *dir, const char *what)
{
    char      *name, *line;
    FILE      *f;
    size_t     size;
    unsigned   found;

    name = llm_capture_format("%s/logs/aiperf.log", dir);
    f = fopen(name, "r");
    free(name);

    if (f == NULL) {
        return 0;
    }

    line = NULL;
    size = 0;
    found = 0;

    while (!found && getline(&line, &size, f) != -1) {
        found = strstr(line, what) != NULL;
    }

    free(line);
    fclose(f);

    return found;
}
