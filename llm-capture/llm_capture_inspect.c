
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture_shape.h"


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *manifest;
    const char            *plot;
    unsigned               force;
    unsigned               json;
    unsigned               text;
} llm_capture_asked;


static const llm_capture_option_t  llm_capture_inspect_options[] = {
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUTCOMES_OPTION,
    LLM_CAPTURE_MANIFEST_OPTION,
    { "plot", 's', &llm_capture_asked.plot, "OUT",
      "a picture, .svg or .png, by matplotlib" },
    { "force", 'b', &llm_capture_asked.force, NULL, "overwrite OUT" },
    { "json", 'b', &llm_capture_asked.json, NULL, "the result as JSON" },
    { "text", 'b', &llm_capture_asked.text, NULL, "the result as text" },
    { NULL, 0, NULL, NULL, NULL }
};


/* gaps to tell one by one */
#define LLM_CAPTURE_GAPS  8


static const double  llm_capture_q[] = { .5, .9, .99 };


/* 1234567 -> 1,234,567 */

static const char *
llm_capture_thousands(double n)
{
    int          i, len, k;
    char         raw[64];

    static char      out[8][80];
    static unsigned  at;

    at = (at + 1) % 8;
    len = snprintf(raw, sizeof(raw), "%.0f", n);

    for (i = k = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0 && raw[i - 1] != '-') {
            out[at][k++] = ',';
        }

        out[at][k++] = raw[i];
    }

    out[at][k] = '\0';

    return out[at];
}


static void
llm_capture_text_hist(const char *name, const char *from,
    const llm_capture_hist_t *h)
{
    unsigned  i;

    if (h->n == 0) {
        return;
    }

    printf("%-16s%10s", name, llm_capture_thousands(llm_capture_mean(h)));

    for (i = 0; i < llm_capture_nelem(llm_capture_q); i++) {
        printf(" %10s", llm_capture_thousands(llm_capture_quantile(h,
                                                     llm_capture_q[i])));
    }

    printf(" %10s  %s\n", llm_capture_thousands(h->max), from);
}


static void
llm_capture_turns(const llm_capture_shape_t *s, llm_capture_hist_t *h)
{
    size_t  i;

    memset(h, 0, sizeof(llm_capture_hist_t));

    for (i = 0; i < s->session.at.size; i++) {
        if (s->session.at.key[i]) {
            llm_capture_hist(h, (double) s->session.at.value[i]);
        }
    }
}


static const char *
llm_capture_from(const char *from)
{
    return strcmp(from, "estimate") == 0
               ? "tokens, an estimate: bytes of text / 4"
           : strcmp(from, "asked") == 0 ? "tokens, as asked for at most"
           : strcmp(from, "outcomes") == 0 ? "tokens, from outcomes"
                                           : "tokens, from the rows";
}


static void
llm_capture_text_times(const llm_capture_shape_t *s)
{
    double    at, seconds;
    uint64_t  peak;

    if (s->times.rows == 0) {
        puts("duration        no timestamps");
        return;
    }

    seconds = (s->times.last - s->times.first) / 1000;

    printf("duration        %s s", llm_capture_thousands(seconds));

    if (seconds > 0) {
        printf(", %.3g requests a second", (double) s->times.rows / seconds);
    }

    if (s->times.beyond) {
        printf(", %" PRIu64 " more than 48 days away", s->times.beyond);
    }

    peak = llm_capture_peak(&s->times, 1, &at);
    printf("\npeak second     %s, %s s after the first",
           llm_capture_thousands((double) peak), llm_capture_thousands(at));

    peak = llm_capture_peak(&s->times, 60, &at);
    printf("\npeak minute     %s, %s s after the first",
           llm_capture_thousands((double) peak), llm_capture_thousands(at));

    printf("\nburstiness      %.3g (variance by mean of requests a second;"
           " Poisson: 1)\n", llm_capture_dispersion(&s->times));
}


static void
llm_capture_text_list(const llm_capture_shape_t *s)
{
    unsigned  i, k;

    if (s->payloads == 0) {
        return;
    }

    printf("endpoints      ");

    for (k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        if (s->endpoint[i]) {
            printf("%s %s %s", k++ ? "," : "",
                   llm_capture_thousands((double) s->endpoint[i]),
                   llm_capture_endpoint_name(i));
        }
    }

    printf("\nmodels         ");

    for (i = 0; i < s->models && i < 8; i++) {
        printf("%s %s %s", i ? "," : "",
               llm_capture_thousands((double) s->model_n[i]),
               s->model[i][0] ? s->model[i] : "(none)");
    }

    printf("%s\nstream          %.1f %%\n", i < s->models ? ", ..." : "",
           100 * (double) s->stream / (double) s->payloads);
}


/* what the manifest says is not in the file */

static void
llm_capture_text_manifest(const llm_capture_shape_t *s)
{
    double                         from, to, t0;
    json_t                        *v, *gaps;
    size_t                         i;
    const char                    *name;
    const llm_capture_manifest_t  *m;

    m = s->manifest;

    if (m == NULL) {
        return;
    }

    if (m->json == NULL) {
        printf("missing         not known: %s\n", m->why);
        return;
    }

    printf("missing         %.3g %%: %s of %s requests were dropped",
           100 * llm_capture_missing(m),
           llm_capture_thousands((double) m->dropped),
           llm_capture_thousands((double) (m->dropped + m->kept)));

    printf("\nleft out        %s pending",
           llm_capture_thousands((double) m->pending));

    json_object_foreach(json_object_get(m->dropper, "reasons"), name, v) {
        printf(", %s %s", llm_capture_thousands(json_number_value(v)), name);
    }

    gaps = json_object_get(m->json, "gaps");
    t0 = json_number_value(json_object_get(m->json, "t0"));

    json_array_foreach(gaps, i, v) {
        from = (double) llm_capture_manifest_int(v, "from") - t0;
        to = (double) llm_capture_manifest_int(v, "to") - t0;

        if (i == LLM_CAPTURE_GAPS) {
            printf("\n                and %zu more",
                   json_array_size(gaps) - i);
            break;
        }

        printf("\n%-16s%s requests, %s s - %s s", i ? "" : "gaps",
               llm_capture_thousands((double)
                                  llm_capture_manifest_int(v, "requests")),
               llm_capture_thousands((from - s->times.first) / 1000),
               llm_capture_thousands((to - s->times.first) / 1000));
    }

    puts("");
}


static void
llm_capture_text_report(const llm_capture_shape_t *s)
{
    double              keys, times;
    llm_capture_hist_t  turns;

    printf("file            %s\nformat          %s\nrequests        %s",
           s->path, llm_capture_format_name(s->format),
           llm_capture_thousands((double) s->rows));

    printf(s->bad ? ", and %s bad lines\n" : "\n",
           llm_capture_thousands((double) s->bad));

    llm_capture_text_manifest(s);
    llm_capture_text_times(s);
    llm_capture_text_list(s);

    llm_capture_counted(&s->session, &keys, &times);
    llm_capture_turns(s, &turns);

    if (keys > 0) {
        printf("sessions        %s%s, of %s requests\n",
               s->session.shift ? "about " : "", llm_capture_thousands(keys),
               llm_capture_thousands(times));
    }

    llm_capture_counted(&s->block, &keys, &times);

    if (times > 0) {
        printf("prefix reuse    %.1f %% of %s%s blocks of %s\n",
               100 * (1 - keys / times), s->block.shift ? "about " : "",
               llm_capture_thousands(times),
               s->payloads ? "2048 bytes" : "512 tokens");
    }

    if (s->outcomes) {
        printf("outcomes        %s (%.1f %%), %s failed\n",
               llm_capture_thousands((double) s->outcomes),
               s->rows ? 100 * (double) s->outcomes / (double) s->rows : 0,
               llm_capture_thousands((double) s->failed));
    }

    printf("\n%-16s%10s %10s %10s %10s %10s\n", "", "mean", "p50", "p90",
           "p99", "max");
    llm_capture_text_hist("turns", "", &turns);
    llm_capture_text_hist("input", llm_capture_from(s->input_from),
                          &s->input);
    llm_capture_text_hist("cached", "tokens, from outcomes", &s->cached);
    llm_capture_text_hist("output", llm_capture_from(s->output_from),
                          &s->output);
    llm_capture_text_hist("first token", "ms", &s->ttft);
    llm_capture_text_hist("end to end", "ms", &s->e2e);

    llm_capture_bars(s, stdout);
}


static void
llm_capture_json_hist(llm_capture_out_t *out, const char *name,
    const char *from, const llm_capture_hist_t *h)
{
    unsigned  i;

    llm_capture_printf(out, ",\"%s\":", name);

    if (h->n == 0) {
        llm_capture_puts(out, "null");
        return;
    }

    llm_capture_printf(out, "{\"n\":%" PRIu64 ",\"mean\":%.6g", h->n,
                       llm_capture_mean(h));

    for (i = 0; i < llm_capture_nelem(llm_capture_q); i++) {
        llm_capture_printf(out, ",\"p%.0f\":%.10g", 100 * llm_capture_q[i],
                           llm_capture_quantile(h, llm_capture_q[i]));
    }

    llm_capture_printf(out, ",\"max\":%.15g", h->max);

    if (from) {
        llm_capture_printf(out, ",\"from\":\"%s\"", from);
    }

    llm_capture_puts(out, "}");
}


static void
llm_capture_json_lists(llm_capture_out_t *out, const llm_capture_shape_t *s)
{
    unsigned  i, k;

    llm_capture_puts(out, ",\"endpoints\":{");

    for (k = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS; i++) {
        if (s->endpoint[i]) {
            llm_capture_printf(out, "%s\"%s\":%" PRIu64, k++ ? "," : "",
                               llm_capture_endpoint_name(i), s->endpoint[i]);
        }
    }

    llm_capture_puts(out, "},\"models\":{");

    for (i = 0; i < s->models; i++) {
        llm_capture_puts(out, i ? "," : "");
        llm_capture_quote(out, s->model[i], strlen(s->model[i]));
        llm_capture_printf(out, ":%" PRIu64, s->model_n[i]);
    }

    llm_capture_printf(out, "},\"stream\":%" PRIu64, s->stream);
}


static void
llm_capture_json_times(llm_capture_out_t *out, const llm_capture_shape_t *s)
{
    double    second, minute, seconds;
    uint64_t  n;

    if (s->times.rows == 0) {
        llm_capture_puts(out, ",\"duration_s\":null");
        return;
    }

    seconds = (s->times.last - s->times.first) / 1000;
    n = llm_capture_peak(&s->times, 1, &second);

    llm_capture_printf(out, ",\"duration_s\":%.15g,\"rate\":%.6g,"
                       "\"peak_second\":{\"requests\":%" PRIu64
                       ",\"at_s\":%.0f}",
                       seconds, seconds > 0 ? (double) s->times.rows / seconds
                                            : 0, n, second);

    n = llm_capture_peak(&s->times, 60, &minute);
    llm_capture_printf(out, ",\"peak_minute\":{\"requests\":%" PRIu64
                       ",\"at_s\":%.0f},\"burstiness\":%.6g", n, minute,
                       llm_capture_dispersion(&s->times));
}


static void
llm_capture_json_manifest(llm_capture_out_t *out, const llm_capture_shape_t *s)
{
    char                          *reasons, *gaps;
    const llm_capture_manifest_t  *m;

    m = s->manifest;

    llm_capture_puts(out, ",\"manifest\":");

    if (m == NULL || m->json == NULL) {
        llm_capture_puts(out, "null");
        return;
    }

    reasons = json_dumps(json_object_get(m->dropper, "reasons"), JSON_COMPACT);
    gaps = json_dumps(json_object_get(m->json, "gaps"), JSON_COMPACT);

    llm_capture_printf(out, "{\"seen\":%" PRIu64 ",\"recorded\":%" PRIu64
                       ",\"pending\":%" PRIu64 ",\"dropped\":%" PRIu64
                       ",\"missing\":%.6g,\"reasons\":%s,\"gaps\":%s}",
                       m->seen, m->recorded, m->pending, m->dropped,
                       llm_capture_missing(m), reasons ? reasons : "{}",
                       gaps ? gaps : "[]");
    free(reasons);
    free(gaps);
}


static void
llm_capture_json_report(llm_capture_out_t *out, const llm_capture_shape_t *s)
{
    double              keys, times;
    unsigned            i;
    llm_capture_hist_t  turns;

    llm_capture_puts(out, "{\"file\":");
    llm_capture_quote(out, s->path, strlen(s->path));
    llm_capture_printf(out, ",\"format\":\"%s\",\"bytes\":%" PRIu64
                       ",\"requests\":%" PRIu64 ",\"bad\":%" PRIu64,
                       llm_capture_format_name(s->format), s->bytes, s->rows,
                       s->bad);

    llm_capture_json_manifest(out, s);
    llm_capture_json_times(out, s);
    llm_capture_json_lists(out, s);

    llm_capture_counted(&s->session, &keys, &times);
    llm_capture_turns(s, &turns);
    llm_capture_printf(out, ",\"sessions\":%.0f,\"session_requests\":%.0f",
                       keys, times);
    llm_capture_json_hist(out, "turns", NULL, &turns);

    llm_capture_counted(&s->block, &keys, &times);
    llm_capture_printf(out, ",\"prefix\":{\"blocks\":%.0f,\"reused\":%.6g,"
                       "\"sampled\":%.0f}", times,
                       times > 0 ? 1 - keys / times : 0,
                       (double) (UINT64_C(1) << s->block.shift));

    llm_capture_json_hist(out, "input", s->input_from, &s->input);
    llm_capture_json_hist(out, "output", s->output_from, &s->output);
    llm_capture_json_hist(out, "cached", NULL, &s->cached);
    llm_capture_json_hist(out, "ttft_ms", NULL, &s->ttft);
    llm_capture_json_hist(out, "e2e_ms", NULL, &s->e2e);

    llm_capture_printf(out, ",\"outcomes\":{\"rows\":%" PRIu64 ",\"failed\":%"
                       PRIu64 ",\"status\":{", s->outcomes, s->failed);

    for (i = 0; i < 6; i++) {
        llm_capture_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "",
                           (const char *[]) { "none", "1xx", "2xx", "3xx",
                                              "4xx", "5xx" }[i],
                           s->status[i]);
    }

    llm_capture_puts(out, "}}}\n");
}


static int
llm_capture_inspect_run(int argc, char **argv)
{
    int                   i;
    unsigned              json;
    llm_capture_out_t    *out;
    llm_capture_shape_t  *s;

    if (argc > 1 && (llm_capture_asked.plot || llm_capture_asked.outcomes.n
                     || llm_capture_asked.manifest))
    {
        llm_capture_die("--plot, --outcomes and --manifest are for one file");
    }

    json = llm_capture_for_program(llm_capture_asked.json,
                                   llm_capture_asked.text);

    for (i = 0; i < argc; i++) {
        s = llm_capture_shape(argv[i], llm_capture_asked.format,
                              &llm_capture_asked.outcomes,
                              llm_capture_asked.manifest);
        llm_capture_progress_end();

        if (json) {
            out = llm_capture_create("-", 0);
            llm_capture_json_report(out, s);
            llm_capture_commit(out);

        } else {
            printf("%s", i ? "\n" : "");
            llm_capture_text_report(s);
        }

        if (llm_capture_asked.plot) {
            llm_capture_plot(s, llm_capture_asked.plot,
                             llm_capture_asked.force);
        }

        llm_capture_shape_free(s);
    }

    return LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_inspect = {
    "inspect", "FILE...",
    "shows the shape of a workload",
    llm_capture_inspect_options, llm_capture_inspect_run, 1, 0
};
