
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Did this run of AIPerf 0.13.0 measure this workload?  Read from its export:
 * profile_export_aiperf.json, profile_export.jsonl and its log.
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture_shape.h"


#define LLM_CAPTURE_NEAR  0.1       /* of lengths */
#define LLM_CAPTURE_LAG   500       /* ms, as AIPerf's own warning */
#define LLM_CAPTURE_HOLES 0.01      /* of the requests are not in the file */


typedef enum {
    LLM_CAPTURE_YES = 0,
    LLM_CAPTURE_NO,
    LLM_CAPTURE_UNKNOWN,
} llm_capture_answer_e;


typedef struct {
    llm_capture_shape_t   *shape;
    json_t                *run;
    llm_capture_out_t     *out;
    unsigned               json;
    unsigned               n;
    unsigned               no;
    unsigned               unknown;
} llm_capture_check_t;


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *manifest;
    const char            *goodput;
    unsigned               concurrency;
    unsigned               json;
    unsigned               text;
} llm_capture_asked;


static const llm_capture_option_t  llm_capture_check_options[] = {
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUTCOMES_OPTION,
    LLM_CAPTURE_MANIFEST_OPTION,
    { "goodput", 's', &llm_capture_asked.goodput, "GOALS",
      "\"METRIC:MS ...\", such as time_to_first_token:250" },
    { "concurrency", 'b', &llm_capture_asked.concurrency, NULL,
      "the run was not to keep to the schedule" },
    { "json", 'b', &llm_capture_asked.json, NULL, "the result as JSON" },
    { "text", 'b', &llm_capture_asked.text, NULL, "the result as text" },
    { NULL, 0, NULL, NULL, NULL }
};


static void llm_capture_tell(llm_capture_check_t *c, const char *name,
    llm_capture_answer_e answer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));


static void
llm_capture_tell(llm_capture_check_t *c, const char *name,
    llm_capture_answer_e answer, const char *fmt, ...)
{
    char     *s;
    va_list   args;

    va_start(args, fmt);

    if (vasprintf(&s, fmt, args) < 0) {
        llm_capture_die("no memory");
    }

    va_end(args);

    c->no += answer == LLM_CAPTURE_NO;
    c->unknown += answer == LLM_CAPTURE_UNKNOWN;

    if (c->json) {
        llm_capture_printf(c->out, "%s\n{\"check\":\"%s\",\"ok\":%s,\"said\":",
                           c->n ? "," : "", name,
                           answer == LLM_CAPTURE_YES ? "true"
                           : answer == LLM_CAPTURE_NO ? "false" : "null");
        llm_capture_quote(c->out, s, strlen(s));
        llm_capture_puts(c->out, "}");

    } else {
        llm_capture_printf(c->out, "%-4s %-10s %s\n",
                           answer == LLM_CAPTURE_YES ? "yes"
                           : answer == LLM_CAPTURE_NO ? "NO" : "?", name, s);
    }

    c->n++;
    free(s);
}


static json_t *
llm_capture_at_path(json_t *value, const char *path)
{
    char    name[64];
    size_t  n;

    for ( /* void */ ; value && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        memcpy(name, path, n);
        name[n] = '\0';
        value = json_is_array(value)
                ? json_array_get(value, (size_t) atoi(name))
                : json_object_get(value, name);
    }

    return value;
}


/* a metric's mean; -1: it is not there */

static double
llm_capture_metric(llm_capture_check_t *c, const char *name)
{
    json_t  *v;

    v = json_object_get(json_object_get(c->run, name), "avg");

    return json_is_number(v) ? json_number_value(v) : -1;
}


static void
llm_capture_check_counts(llm_capture_check_t *c)
{
    double        good, errors, rate;
    json_t       *summary, *error;
    const char   *message;

    good = llm_capture_metric(c, "request_count");
    errors = llm_capture_metric(c, "error_request_count");
    good = good < 0 ? 0 : good;
    errors = errors < 0 ? 0 : errors;
    rate = llm_capture_metric(c, "request_error_rate");

    llm_capture_tell(c, "requests",
                     good + errors == (double) c->shape->rows
                     ? LLM_CAPTURE_YES : LLM_CAPTURE_NO,
                     "%.0f were sent, of %" PRIu64 " rows", good + errors,
                     c->shape->rows);

    summary = json_object_get(c->run, "error_summary");
    error = json_object_get(json_array_get(summary, 0), "error_details");
    message = json_string_value(json_object_get(error, "message"));

    llm_capture_tell(c, "errors",
                     errors > 0 || rate > 0 || json_array_size(summary)
                     ? LLM_CAPTURE_NO : LLM_CAPTURE_YES,
                     "%.0f requests failed%s%.200s", errors,
                     message ? ": " : "", message ? message : "");

    llm_capture_tell(c, "complete",
                     json_is_true(json_object_get(c->run, "was_cancelled"))
                     || json_is_false(json_object_get(c->run, "is_complete"))
                     ? LLM_CAPTURE_NO : LLM_CAPTURE_YES, "the run %s",
                     json_is_true(json_object_get(c->run, "was_cancelled"))
                     ? "was cancelled" : "came to its end");
}


/* a file with holes is another workload, however well it is replayed */

static void
llm_capture_check_holes(llm_capture_check_t *c)
{
    double                         missing;
    const llm_capture_manifest_t  *m;

    m = c->shape->manifest;

    if (m == NULL) {
        return;
    }

    if (m->json == NULL) {
        llm_capture_tell(c, "capture", LLM_CAPTURE_UNKNOWN, "%s", m->why);
        return;
    }

    missing = llm_capture_missing(m);

    llm_capture_tell(c, "capture", missing > LLM_CAPTURE_HOLES
                     ? LLM_CAPTURE_UNKNOWN : LLM_CAPTURE_YES,
                     "%" PRIu64 " of %" PRIu64 " requests (%.3g %%) were"
                     " dropped when the file was recorded", m->dropped,
                     m->dropped + m->kept, 100 * missing);
}


static void
llm_capture_check_kind(llm_capture_check_t *c)
{
    unsigned     i, k;
    const char  *is, *want;

    is = json_string_value(llm_capture_at_path(c->run,
                                           "input_config.datasets.0.format"));
    want = llm_capture_format_name(c->shape->format);

    llm_capture_tell(c, "dataset",
                     is && strcmp(is, want) == 0 ? LLM_CAPTURE_YES
                                                 : LLM_CAPTURE_NO,
                     is ? "--custom-dataset-type %s, the file is %s"
                        : "--custom-dataset-type was left out%.0s, the file"
                          " is %s", is ? is : "", want);

    if (c->shape->payloads) {
        is = json_string_value(llm_capture_at_path(c->run,
                                               "input_config.endpoint.type"));

        for (want = "", k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
            if (c->shape->endpoint[i]) {
                want = llm_capture_endpoint_name(i);
                k++;
            }
        }

        llm_capture_tell(c, "endpoint",
                         k == 1 && is && strcmp(is, want) == 0
                         ? LLM_CAPTURE_YES : LLM_CAPTURE_NO,
                         "--endpoint-type %s, the payloads are %s",
                         is ? is : "unknown", k == 1 ? want
                                              : "of more than one");
    }
}


static void
llm_capture_check_model(llm_capture_check_t *c)
{
    json_t      *items, *item;
    size_t       k;
    unsigned     i, found;
    const char  *name, *missing;

    if (c->shape->payloads == 0) {
        return;
    }

    items = llm_capture_at_path(c->run, "input_config.models.items");

    for (missing = NULL, i = 0; i < c->shape->models; i++) {
        found = 0;

        json_array_foreach(items, k, item) {
            name = json_string_value(json_object_get(item, "name"));
            found |= name && strcmp(name, c->shape->model[i]) == 0;
        }

        if (!found) {
            missing = c->shape->model[i];
        }
    }

    name = json_string_value(json_object_get(json_array_get(items, 0),
                                             "name"));
    llm_capture_tell(c, "model", missing ? LLM_CAPTURE_NO : LLM_CAPTURE_YES,
                     "--model %s, the payloads ask for %s",
                     name ? name : "unknown", missing ? missing
                     : c->shape->models ? c->shape->model[0] : "none");
}


static void
llm_capture_check_stream(llm_capture_check_t *c)
{
    unsigned  is;

    if (c->shape->payloads == 0) {
        return;
    }

    is = json_is_true(llm_capture_at_path(c->run,
                                          "input_config.endpoint.streaming"));

    if (c->shape->stream && !is) {
        llm_capture_tell(c, "streaming", LLM_CAPTURE_NO,
                         "without --streaming the times to first token of %"
                         PRIu64 " streams are lost", c->shape->stream);

    } else if (is && c->shape->stream < c->shape->payloads) {
        llm_capture_tell(c, "streaming", LLM_CAPTURE_UNKNOWN,
                         "%" PRIu64 " payloads do not stream: their time to"
                         " first token is the whole answer's",
                         c->shape->payloads - c->shape->stream);

    } else {
        llm_capture_tell(c, "streaming", LLM_CAPTURE_YES, "%" PRIu64 " of %"
                         PRIu64 " payloads stream", c->shape->stream,
                         c->shape->payloads);
    }
}


static void
llm_capture_check_schedule(llm_capture_check_t *c, const char *dir)
{
    double       p99, recorded, took;
    unsigned     late;
    const char  *type;

    if (c->shape->times.rows == 0 || llm_capture_asked.concurrency) {
        return;
    }

    type = json_string_value(llm_capture_at_path(c->run,
                                             "input_config.phases.0.type"));

    if (type == NULL || strcmp(type, "fixed_schedule") != 0) {
        llm_capture_tell(c, "schedule", LLM_CAPTURE_NO,
                         "the timestamps were not used: the phase is %s",
                         type ? type : "unknown");
        return;
    }

    p99 = llm_capture_metric(c, "replay_sched_lag_p99");
    late = llm_capture_metric(c, "replay_sched_degraded") > 0
           || p99 > LLM_CAPTURE_LAG
           || llm_capture_logged(dir, "Replay schedule degraded");
    recorded = (c->shape->times.last - c->shape->times.first) / 1000;
    took = llm_capture_metric(c, "benchmark_duration");

    llm_capture_tell(c, "schedule", late ? LLM_CAPTURE_NO : LLM_CAPTURE_YES,
                     p99 < 0 ? "how late requests were sent is not told"
                             : "requests were sent up to %.0f ms late (p99)",
                     p99);

    if (took >= 0) {
        llm_capture_tell(c, "duration",
                         took < 0.9 * recorded ? LLM_CAPTURE_NO
                                               : LLM_CAPTURE_YES,
                         "the run took %.1f s, the schedule %.1f s", took,
                         recorded);
    }
}


static void
llm_capture_check_length(llm_capture_check_t *c, const char *name,
    const llm_capture_hist_t *h, const char *from, double is)
{
    double  want;

    want = llm_capture_mean(h);

    if (h->n == 0 || is < 0 || want <= 0) {
        llm_capture_tell(c, name, LLM_CAPTURE_UNKNOWN,
                         "the mean is %.1f tokens, and nothing to compare it"
                         " with", is);
        return;
    }

    if (strcmp(from, "estimate") == 0 || strcmp(from, "asked") == 0) {
        llm_capture_tell(c, name, LLM_CAPTURE_UNKNOWN,
                         "the mean is %.1f tokens; without outcomes there is"
                         " only %s: %.1f", is,
                         *from == 'e' ? "an estimate" : "what was asked for",
                         want);
        return;
    }

    llm_capture_tell(c, name,
                     fabs(is - want) <= LLM_CAPTURE_NEAR * want
                     ? LLM_CAPTURE_YES : LLM_CAPTURE_NO,
                     "the mean is %.1f tokens, recorded were %.1f (%+.0f%%)",
                     is, want, 100 * (is - want) / want);
}


static void
llm_capture_check_lengths(llm_capture_check_t *c)
{
    double  in, out;

    /* what the server counted, or else AIPerf */

    in = llm_capture_metric(c, "usage_prompt_tokens");
    out = llm_capture_metric(c, "usage_completion_tokens");

    if (in < 0) {
        in = llm_capture_metric(c, "input_sequence_length");
    }

    if (out < 0) {
        out = llm_capture_metric(c, "output_sequence_length");
    }

    llm_capture_check_length(c, "input", &c->shape->input,
                             c->shape->input_from, in);
    llm_capture_check_length(c, "output", &c->shape->output,
                             c->shape->output_from, out);
}


static void
llm_capture_check_goodput(llm_capture_check_t *c, const char *dir)
{
    double    took;
    uint64_t  good, rows;

    llm_capture_goodput(dir, llm_capture_asked.goodput, &good, &rows);
    took = llm_capture_metric(c, "benchmark_duration");

    llm_capture_tell(c, "goodput", rows ? LLM_CAPTURE_YES : LLM_CAPTURE_NO,
                     "%" PRIu64 " of %" PRIu64 " requests (%.1f %%) met %s,"
                     " %.3g a second", good, rows,
                     rows ? 100 * (double) good / (double) rows : 0,
                     llm_capture_asked.goodput,
                     took > 0 ? (double) good / took : 0);
}


static int
llm_capture_check_run(int argc, char **argv)
{
    char                 *name;
    json_error_t          err;
    llm_capture_check_t   c;

    (void) argc;

    memset(&c, 0, sizeof(llm_capture_check_t));
    c.json = llm_capture_for_program(llm_capture_asked.json,
                                     llm_capture_asked.text);

    name = llm_capture_format("%s/profile_export_aiperf.json", argv[0]);
    c.run = json_load_file(name, 0, &err);

    if (c.run == NULL) {
        llm_capture_die("%s: %s", name, err.text);
    }

    c.shape = llm_capture_shape(argv[1], llm_capture_asked.format,
                                &llm_capture_asked.outcomes,
                                llm_capture_asked.manifest);
    llm_capture_progress_end();

    c.out = llm_capture_create("-", 0);

    if (c.json) {
        llm_capture_puts(c.out, "{\"checks\":[");
    }

    llm_capture_check_counts(&c);
    llm_capture_check_holes(&c);
    llm_capture_check_kind(&c);
    llm_capture_check_model(&c);
    llm_capture_check_stream(&c);
    llm_capture_check_schedule(&c, argv[0]);
    llm_capture_check_lengths(&c);

    if (llm_capture_asked.goodput) {
        llm_capture_check_goodput(&c, argv[0]);
    }

    if (c.json) {
        llm_capture_printf(c.out, "\n],\"ok\":%s,\"unknown\":%u}\n",
                           c.no ? "false" : "true", c.unknown);

    } else {
        llm_capture_puts(c.out, c.no ? "NO: this run did not measure this"
                                       " workload\n"
                                     : "yes: this run measured this"
                                       " workload\n");
    }

    llm_capture_commit(c.out);
    llm_capture_shape_free(c.shape);
    json_decref(c.run);
    free(name);

    return c.no ? LLM_CAPTURE_BAD
                : c.unknown ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_check = {
    "check", "RUN_DIR FILE",
    "says whether a run of AIPerf measured the workload of a file",
    llm_capture_check_options, llm_capture_check_run, 2, 2
};
