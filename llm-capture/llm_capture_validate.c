
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_scan.h"
#include "llm_capture_manifest.h"


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
    double                 first;       /* least and largest timestamp */
    double                 last;
    llm_capture_manifest_t *manifest;   /* NULL: there is none */
    llm_capture_sum_t      sum;
} llm_capture_verdict_t;


static struct {
    const char            *format;
    const char            *repair;
    uint64_t               errors;
    unsigned               force;
    unsigned               no_manifest;
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
    { "no-manifest", 'b', &llm_capture_asked.no_manifest, NULL,
      "leave X.manifest.json beside X.jsonl alone" },
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
llm_capture_timed(llm_capture_verdict_t *v, llm_capture_row_t *row)
{
    double  at;

    if (row->is[LLM_CAPTURE_TIMESTAMP].p == NULL
        || row->is[LLM_CAPTURE_TIMESTAMP].p[0] == 'n')
    {
        return;
    }

    at = llm_capture_arrival(row);

    v->first = v->timed && v->first < at ? v->first : at;
    v->last = v->timed && v->last > at ? v->last : at;
    v->first_timed |= (v->rows == 0);
    v->timed++;
}


static void
llm_capture_good(llm_capture_verdict_t *v, llm_capture_row_t *row)
{
    llm_capture_payload_t  p;

    llm_capture_timed(v, row);

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

    } else {
        v->whole = llm_capture_packed_why(v->f->packed, v->format);
    }
}


static void
llm_capture_validate_sum(llm_capture_verdict_t *v, unsigned digest)
{
    char                 hex[LLM_CAPTURE_SHA256];
    llm_capture_facts_t  facts;

    if (digest) {
        llm_capture_digest_end(v->f, hex);
    }

    facts = (llm_capture_facts_t) {
        .path = v->f->path,
        .format = v->format,
        .packed = v->f->packed,
        .rows = v->rows + v->bad,
        .bytes = v->f->taken,
        .plain = v->f->base + v->f->end,
        .timed = v->timed,
        .first = v->first,
        .last = v->last,
        .sha256 = digest ? hex : NULL
    };

    llm_capture_sum(&v->sum, v->manifest, &facts);
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
llm_capture_report_texts(llm_capture_verdict_t *v, const char *const *text,
    unsigned n)
{
    unsigned  i;

    llm_capture_puts(v->report, "[");

    for (i = 0; i < n; i++) {
        llm_capture_puts(v->report, i ? "," : "");
        llm_capture_quote(v->report, text[i], strlen(text[i]));
    }

    llm_capture_puts(v->report, "]");
}


static void
llm_capture_report_manifest(llm_capture_verdict_t *v)
{
    llm_capture_manifest_t  *m;

    m = v->manifest;

    llm_capture_puts(v->report, ",\"manifest\":");

    if (m == NULL) {
        llm_capture_puts(v->report, "null");
        return;
    }

    llm_capture_puts(v->report, "{\"file\":");
    llm_capture_quote(v->report, m->path, strlen(m->path));
    llm_capture_printf(v->report, ",\"ok\":%s,\"sealed\":%s,\"seen\":%" PRIu64
                       ",\"recorded\":%" PRIu64 ",\"left_out\":%" PRIu64
                       ",\"pending\":%" PRIu64 ",\"why\":",
                       v->sum.n ? "false" : "true",
                       m->sealed ? "true" : "false", m->seen, m->recorded,
                       m->reasons, m->pending);
    llm_capture_report_texts(v, (const char *const *) v->sum.wrong, v->sum.n);
    llm_capture_puts(v->report, ",\"remarks\":");
    llm_capture_report_texts(v, (const char *const *) v->sum.remark,
                             v->sum.remarks);
    llm_capture_puts(v->report, "}");
}


static void
llm_capture_report_json(llm_capture_verdict_t *v, const char **warning,
    unsigned n)
{
    unsigned     i, k;
    const char  *packed;

    packed = llm_capture_packed_name(v->f->packed);

    llm_capture_puts(v->report, v->bad ? "\n]" : "]");
    llm_capture_puts(v->report, ",\"file\":");
    llm_capture_quote(v->report, v->f->path, strlen(v->f->path));
    llm_capture_printf(v->report, ",\"ok\":%s,\"format\":\"%s\","
                       "\"compression\":%s%s%s,\"rows\":%" PRIu64
                       ",\"bad\":%" PRIu64 ",\"timestamps\":%" PRIu64
                       ",\"endpoints\":{",
                       v->bad || v->whole || v->sum.n ? "false" : "true",
                       llm_capture_format_name(v->format), packed ? "\"" : "",
                       packed ? packed : "null", packed ? "\"" : "", v->rows,
                       v->bad, v->timed);

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

    llm_capture_puts(v->report, ",\"warnings\":");
    llm_capture_report_texts(v, warning, n);
    llm_capture_report_manifest(v);
    llm_capture_puts(v->report, "}\n");
}


static void
llm_capture_text_manifest(llm_capture_verdict_t *v)
{
    unsigned                 i;
    llm_capture_manifest_t  *m;

    m = v->manifest;

    for (i = 0; i < v->sum.n; i++) {
        llm_capture_printf(v->report, "%s: %s\n", v->f->path,
                           v->sum.wrong[i]);
    }

    for (i = 0; i < v->sum.remarks; i++) {
        llm_capture_printf(v->report, "%s: %s\n", v->f->path,
                           v->sum.remark[i]);
    }

    if (m && m->json) {
        llm_capture_printf(v->report, "%s: %" PRIu64 " seen = %" PRIu64
                           " recorded + %" PRIu64 " left out + %" PRIu64
                           " pending, of a %s file\n", v->f->path, m->seen,
                           m->recorded, m->reasons, m->pending,
                           m->sealed ? "sealed" : "live");
    }
}


static void
llm_capture_report_text(llm_capture_verdict_t *v, const char **warning,
    unsigned n)
{
    unsigned     i, k;
    const char  *packed;

    packed = llm_capture_packed_name(v->f->packed);

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

    llm_capture_text_manifest(v);

    llm_capture_printf(v->report, "%s: %s%s%s: %" PRIu64 " rows, %" PRIu64
                       " bad", v->f->path, llm_capture_format_name(v->format),
                       packed ? ", " : "", packed ? packed : "", v->rows,
                       v->bad);

    for (k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        if (v->endpoint[i]) {
            llm_capture_printf(v->report, "%s%" PRIu64 " %s", k++ ? ", " : ": ",
                               v->endpoint[i], llm_capture_endpoint_name(i));
        }
    }

    llm_capture_puts(v->report, v->manifest || llm_capture_asked.no_manifest
                                ? "\n" : "; there is no manifest beside it\n");
}


static int
llm_capture_validate_file(llm_capture_out_t *report, const char *path,
    unsigned json)
{
    unsigned               n, digest, no;
    const char            *warning[2];
    llm_capture_verdict_t  v;

    memset(&v, 0, sizeof(llm_capture_verdict_t));

    v.report = report;
    v.json = json ? 1 : 0;
    v.format = llm_capture_format_of(llm_capture_asked.format, path);
    v.judge = llm_capture_judge();

    /* before the file: of a live one it is the older */

    if (!llm_capture_asked.no_manifest) {
        v.manifest = llm_capture_manifest(path, NULL);
    }

    v.f = llm_capture_open(path, v.format == LLM_CAPTURE_MOONCAKE);
    llm_capture_progress_total(v.f->size);

    digest = llm_capture_sum_digest(v.manifest, v.f->packed);

    if (digest) {
        llm_capture_digest(v.f);
    }

    if (llm_capture_asked.repair) {
        v.repair = llm_capture_create(llm_capture_asked.repair,
                                      llm_capture_asked.force);
    }

    if (json) {
        llm_capture_puts(report, "{\"errors\":[");
    }

    if (v.f->lfs) {
        v.whole = "a Git-LFS pointer, not the file: git lfs pull";

    } else {
        llm_capture_lines(&v);
    }

    if (v.manifest) {
        llm_capture_validate_sum(&v, digest);
    }

    n = llm_capture_warnings(&v, warning);

    if (json) {
        llm_capture_report_json(&v, warning, n);

    } else {
        llm_capture_report_text(&v, warning, n);
    }

    if (v.repair) {
        llm_capture_commit(v.repair);
    }

    no = v.bad || v.whole || v.sum.n;

    llm_capture_sum_free(&v.sum);
    llm_capture_manifest_free(v.manifest);
    llm_capture_judge_free(v.judge);
    llm_capture_close(v.f);

    return no ? LLM_CAPTURE_BAD
              : n ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
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
