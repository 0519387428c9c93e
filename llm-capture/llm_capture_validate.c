
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_scan.h"
#include "llm_capture.h"


typedef struct {
    llm_capture_file_t    *f;
    llm_capture_format_e   format;
    llm_capture_judge_t   *judge;
    llm_capture_out_t     *repair;      /* NULL: not asked for */
    llm_capture_out_t     *report;
    uint64_t               rows;
    uint64_t               bad;
    uint64_t               endpoint[LLM_CAPTURE_ENDPOINTS];
    uint64_t               payloads;
    uint64_t               timed;       /* rows with a timestamp */
    unsigned               first_timed:1;
    unsigned               json:1;
    const char            *whole;       /* NULL, or what the file is not */
} llm_capture_verdict_t;


static struct {
    const char            *format;
    const char            *repair;
    uint64_t               errors;
    unsigned               force;
    unsigned               json;
    unsigned               text;
} llm_capture_asked = { .errors = 20 };


static const llm_capture_option_t  llm_capture_validate_options[] = {
    LLM_CAPTURE_FORMAT_OPTION,
    { "repair", 's', &llm_capture_asked.repair, "OUT",
      "write the good lines there, byte for byte" },
    { "errors", 'n', &llm_capture_asked.errors, "N",
      "lines to tell one by one (20)" },
    { "force", 'b', &llm_capture_asked.force, NULL, "overwrite OUT" },
    { "json", 'b', &llm_capture_asked.json, NULL, "the result as JSON" },
    { "text", 'b', &llm_capture_asked.text, NULL, "the result as text" },
    { NULL, 0, NULL, NULL, NULL }
};


static void
llm_capture_refuse(llm_capture_verdict_t *v, const char *why)
{
    v->bad++;

    if (v->bad > llm_capture_asked.errors) {
        return;
    }

    if (!v->json) {
        llm_capture_printf(v->report, "%s:%" PRIu64 ": %s\n", v->f->path,
                           v->f->line, why);
        return;
    }

    llm_capture_printf(v->report, "%s\n{\"line\":%" PRIu64 ",\"why\":",
                       v->bad == 1 ? "" : ",", v->f->line);
    llm_capture_quote(v->report, why, strlen(why));
    llm_capture_puts(v->report, "}");
}


/* NULL: the row is good */

static const char *
llm_capture_row_verdict(llm_capture_verdict_t *v, llm_capture_row_t *row)
{
    const char  *why;

    if (row->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        why = llm_capture_judge_row(v->judge, row);

        return why;
    }

    /* the last line, if it has no end and is no JSON so far */

    if (v->f->cut && row->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_JSON) {
        return "the last line is cut off";
    }

    if (row->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_JSON && v->f->line == 1
        && row->text.n >= 3 && memcmp(row->text.p, "\xef\xbb\xbf", 3) == 0)
    {
        return "a byte order mark";
    }

    return llm_capture_why(row->verdict);
}


static void
llm_capture_good(llm_capture_verdict_t *v, llm_capture_row_t *row)
{
    llm_capture_payload_t  p;

    if (row->is[LLM_CAPTURE_TIMESTAMP].p
        && row->is[LLM_CAPTURE_TIMESTAMP].p[0] != 'n')
    {
        v->first_timed |= (v->rows == 0);
        v->timed++;
    }

    v->rows++;

    if (row->payload.p) {
        llm_capture_payload(&p, row->payload);
        v->endpoint[p.endpoint]++;
        v->payloads++;
    }
}


static void
llm_capture_lines(llm_capture_verdict_t *v)
{
    int                 rc;
    size_t              whole;
    const char         *why;
    llm_capture_str_t   text;
    llm_capture_row_t   row;

    while ((rc = llm_capture_line(v->f, &text, &whole)) == 1) {

        if (!llm_capture_row(&row, v->format, text)) {
            continue;
        }

        why = llm_capture_row_verdict(v, &row);

        if (why) {
            llm_capture_refuse(v, why);
            continue;
        }

        llm_capture_good(v, &row);

        if (v->repair) {
            llm_capture_write(v->repair, text.p, whole);

            if (v->f->cut) {
                llm_capture_puts(v->repair, "\n");
            }
        }
    }

    if (rc == -1) {
        v->whole = v->f->error;

    } else if (v->rows + v->bad == 0) {
        v->whole = "it has no rows";
    }
}


/* those that a replay would not stop at */

static unsigned
llm_capture_warnings(llm_capture_verdict_t *v, const char *warning[2])
{
    unsigned  i, n, types;

    for (types = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        types += v->endpoint[i] != 0;
    }

    n = 0;

    if (types > 1) {
        warning[n++] = "payloads of more than one endpoint type: AIPerf sends"
                       " all to the one that it is given; see split";
    }

    if (v->timed && v->timed < v->rows) {
        warning[n++] = v->first_timed
            ? "rows without timestamp behind a first row that has one: a"
              " replay by schedule fails"
            : "the first row has no timestamp: AIPerf keeps to none";
    }

    return n;
}


static void
llm_capture_report_json(llm_capture_verdict_t *v, const char **warning,
    unsigned n)
{
    unsigned     i, k;

    llm_capture_puts(v->report, v->bad ? "\n]" : "]");
    llm_capture_puts(v->report, ",\"file\":");
    llm_capture_quote(v->report, v->f->path, strlen(v->f->path));
    llm_capture_printf(v->report, ",\"ok\":%s,\"format\":\"%s\",\"gzip\":%s,"
                       "\"rows\":%" PRIu64 ",\"bad\":%" PRIu64
                       ",\"timestamps\":%" PRIu64 ",\"endpoints\":{",
                       v->bad || v->whole ? "false" : "true",
                       llm_capture_format_name(v->format),
                       v->f->gzip ? "true" : "false", v->rows, v->bad,
                       v->timed);

    for (k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        if (v->endpoint[i]) {
            llm_capture_printf(v->report, "%s\"%s\":%" PRIu64, k++ ? "," : "",
                               llm_capture_endpoint_name(i), v->endpoint[i]);
        }
    }

    llm_capture_puts(v->report, "},\"why\":");

    if (v->whole) {
        llm_capture_quote(v->report, v->whole, strlen(v->whole));

    } else {
        llm_capture_puts(v->report, "null");
    }

    llm_capture_puts(v->report, ",\"warnings\":[");

    for (i = 0; i < n; i++) {
        llm_capture_puts(v->report, i ? "," : "");
        llm_capture_quote(v->report, warning[i], strlen(warning[i]));
    }

    llm_capture_puts(v->report, "]}\n");
}


static void
llm_capture_report_text(llm_capture_verdict_t *v, const char **warning,
    unsigned n)
{
    unsigned  i, k;

    if (v->bad > llm_capture_asked.errors) {
        llm_capture_printf(v->report, "%s: and %" PRIu64 " more\n",
                           v->f->path, v->bad - llm_capture_asked.errors);
    }

    for (i = 0; i < n; i++) {
        llm_capture_printf(v->report, "%s: %s\n", v->f->path, warning[i]);
    }

    if (v->whole) {
        llm_capture_printf(v->report, "%s: %s\n", v->f->path, v->whole);
    }

    llm_capture_printf(v->report, "%s: %s%s: %" PRIu64 " rows, %" PRIu64
                       " bad", v->f->path, llm_capture_format_name(v->format),
                       v->f->gzip ? ", gzip" : "", v->rows, v->bad);

    for (k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        if (v->endpoint[i]) {
            llm_capture_printf(v->report, "%s%" PRIu64 " %s", k++ ? ", " : ": ",
                               v->endpoint[i], llm_capture_endpoint_name(i));
        }
    }

    llm_capture_puts(v->report, "\n");
}


static int
llm_capture_validate_file(llm_capture_out_t *report, const char *path,
    unsigned json)
{
    unsigned               n;
    const char            *warning[2];
    llm_capture_verdict_t  v;

    memset(&v, 0, sizeof(llm_capture_verdict_t));

    v.report = report;
    v.json = json ? 1 : 0;
    v.format = llm_capture_format_of(llm_capture_asked.format, path);
    v.judge = llm_capture_judge();

    /* AIPerf unpacks a trace, and no raw_payload */

    v.f = llm_capture_open(path, v.format == LLM_CAPTURE_MOONCAKE,
                           v.format == LLM_CAPTURE_MOONCAKE);
    llm_capture_progress_total(v.f->size);

    if (llm_capture_asked.repair) {
        v.repair = llm_capture_create(llm_capture_asked.repair,
                                      llm_capture_asked.force);
    }

    if (json) {
        llm_capture_puts(report, "{\"errors\":[");
    }

    if (v.f->lfs) {
        v.whole = "a Git-LFS pointer, not the file: git lfs pull";

    } else if (v.f->gzip && v.format == LLM_CAPTURE_RAW) {
        v.whole = "a gzip: AIPerf unpacks a mooncake_trace, no raw_payload";

    } else {
        llm_capture_lines(&v);
    }

    /* a manifest's sum and sha256 are to be compared here, when there is one */

    n = llm_capture_warnings(&v, warning);

    if (json) {
        llm_capture_report_json(&v, warning, n);

    } else {
        llm_capture_report_text(&v, warning, n);
    }

    if (v.repair) {
        llm_capture_commit(v.repair);
    }

    llm_capture_judge_free(v.judge);
    llm_capture_close(v.f);

    if (v.bad || v.whole) {
        return LLM_CAPTURE_BAD;
    }

    return n ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


static int
llm_capture_validate_run(int argc, char **argv)
{
    int                 i, rc, worst;
    unsigned            json;
    llm_capture_out_t  *report;

    if (llm_capture_asked.repair && argc > 1) {
        llm_capture_die("--repair is for one file");
    }

    if (llm_capture_asked.repair && strcmp(llm_capture_asked.repair, "-") == 0)
    {
        llm_capture_die("--repair needs a file: stdout has the report");
    }

    json = llm_capture_for_program(llm_capture_asked.json,
                                   llm_capture_asked.text);
    report = llm_capture_create("-", 0);
    worst = LLM_CAPTURE_OK;

    for (i = 0; i < argc; i++) {
        rc = llm_capture_validate_file(report, argv[i], json);

        if (rc == LLM_CAPTURE_BAD || worst == LLM_CAPTURE_OK) {
            worst = rc;
        }
    }

    llm_capture_progress_end();
    llm_capture_commit(report);

    return worst;
}


const llm_capture_command_t  llm_capture_validate = {
    "validate", "FILE...",
    "says of each line whether AIPerf's loaders take it",
    llm_capture_validate_options, llm_capture_validate_run, 1, 0
};
