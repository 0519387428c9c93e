
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm_capture.h"


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *to;
    const char            *key_file;
    const char            *out;
    unsigned               estimate;
    unsigned               force;
} llm_capture_asked = { .out = "-" };


static const llm_capture_option_t  llm_capture_convert_options[] = {
    { "to", 's', &llm_capture_asked.to, "FORMAT",
      "one of the five in the manual" },
    LLM_CAPTURE_OUTCOMES_OPTION,
    { "estimate", 'b', &llm_capture_asked.estimate, NULL,
      "guess what is unknown: bytes / 4, max_tokens" },
    { "key-file", 's', &llm_capture_asked.key_file, "KEY",
      "of baseten_trace: the key of total_hashes" },
    { "format", 's', &llm_capture_asked.format, "NAME",
      "of FILE: mooncake_trace, raw_payload or auto" },
    { "out", 's', &llm_capture_asked.out, "OUT",
      "instead of stdout; may be .parquet or .arrow" },
    { "force", 'b', &llm_capture_asked.force, NULL, "overwrite OUT" },
    { NULL, 0, NULL, NULL, NULL }
};


/* bodies as rows of a trace, with the lengths of their answers */

static void
llm_capture_mooncake(llm_capture_convert_t *c)
{
    char                 length[64];
    double               prompt, completion;
    llm_capture_edits_t  e;

    memset(&e, 0, sizeof(e));

    while (llm_capture_row_next(c->f, &c->row, &c->bad)) {
        c->rows++;

        if (c->row.format == LLM_CAPTURE_RAW) {
            llm_capture_puts(c->out, "{\"payload\":");
            llm_capture_write(c->out, c->row.text.p, c->row.text.n);
            llm_capture_puts(c->out, "}\n");
            continue;
        }

        llm_capture_lengths(&c->row, c->o, 0, &prompt, &completion);

        if (completion >= 1) {
            snprintf(length, sizeof(length), "%.0f", completion);
            llm_capture_edit_member(&e, c->row.text, "output_length", length);
        }

        llm_capture_edited(c->out, c->row.text, &e);
    }

    free(e.edit);
    free(e.text);
}


/* seconds, and lengths alone */

static void
llm_capture_burst_gpt(llm_capture_convert_t *c)
{
    char    *model;
    double   prompt, completion;
    size_t   i;

    llm_capture_puts(c->out, "Timestamp,Model,Request tokens,Response tokens,"
                             "Total tokens,Log Type\n");

    while (llm_capture_row_next(c->f, &c->row, &c->bad)) {
        c->rows++;

        llm_capture_lengths(&c->row, c->o, c->estimate, &prompt, &completion);

        if (prompt < 1 || completion < 1) {
            c->none++;
            continue;
        }

        model = c->row.payload.p ? llm_capture_path(c->row.payload, "model").p
                ? llm_capture_text(llm_capture_path(c->row.payload, "model"))
                : NULL : NULL;

        /* a word of CSV */

        for (i = 0; model && model[i]; i++) {
            if (strchr("\",\r\n", model[i])) {
                model[i] = '_';
            }
        }

        llm_capture_printf(c->out, "%.3f,%s,%.0f,%.0f,%.0f,%s\n",
                           llm_capture_arrival(&c->row) / 1000,
                           model ? model : "", prompt, completion,
                           prompt + completion,
                           c->row.is[LLM_CAPTURE_SESSION].p
                           ? "Conversation log" : "API log");
        free(model);
    }
}


/* what SageMaker's data capture writes: of chat alone */

static void
llm_capture_sagemaker(llm_capture_convert_t *c)
{
    char                   when[64], *id, *usage;
    double                 at, prompt, completion;
    time_t                 s;
    struct tm              tm;
    llm_capture_payload_t  p;

    while (llm_capture_row_next(c->f, &c->row, &c->bad)) {
        c->rows++;

        if (c->row.payload.p == NULL) {
            c->none++;
            continue;
        }

        llm_capture_payload(&p, c->row.payload);

        if (p.is[LLM_CAPTURE_P_MESSAGES].p == NULL
            || p.is[LLM_CAPTURE_P_MESSAGES].p[0] != '[')
        {
            c->none++;
            continue;
        }

        llm_capture_lengths(&c->row, c->o, 0, &prompt, &completion);

        at = (double) c->t0 + llm_capture_arrival(&c->row);
        s = (time_t) floor(at / 1000);
        gmtime_r(&s, &tm);
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(when + strlen(when), 8, ".%03uZ",
                 (unsigned) (at - 1000 * (double) s) % 1000);

        id = c->row.is[LLM_CAPTURE_ID].p
             ? llm_capture_text(c->row.is[LLM_CAPTURE_ID])
             : llm_capture_format("%" PRIu64, c->f->line);

        llm_capture_puts(c->out, "{\"captureData\":{\"endpointInput\":{"
                         "\"observedContentType\":\"application/json\","
                         "\"mode\":\"INPUT\",\"data\":");
        llm_capture_quote(c->out, c->row.payload.p, c->row.payload.n);
        llm_capture_puts(c->out, ",\"encoding\":\"JSON\"}");

        if (prompt >= 0 && completion >= 0) {
            usage = llm_capture_format("{\"usage\":{\"prompt_tokens\":%.0f,"
                                       "\"completion_tokens\":%.0f}}", prompt,
                                       completion);
            llm_capture_puts(c->out, ",\"endpointOutput\":{"
                             "\"observedContentType\":\"application/json\","
                             "\"mode\":\"OUTPUT\",\"data\":");
            llm_capture_quote(c->out, usage, strlen(usage));
            llm_capture_puts(c->out, ",\"encoding\":\"JSON\"}");
            free(usage);
        }

        llm_capture_puts(c->out, "},\"eventMetadata\":{\"eventId\":");
        llm_capture_quote(c->out, id, strlen(id));
        llm_capture_printf(c->out, ",\"inferenceTime\":\"%s\"},"
                           "\"eventVersion\":\"0\"}\n", when);
        free(id);
    }
}


static const struct {
    const char  *name;
    void       (*convert)(llm_capture_convert_t *c);
    const char  *needs;
} llm_capture_formats[] = {
    { "mooncake_trace", llm_capture_mooncake, "" },
    { "inputs_json", llm_capture_inputs_json, "have no payload" },
    { "sagemaker", llm_capture_sagemaker, "have no list of messages" },
    { "burst_gpt", llm_capture_burst_gpt,
      "have no lengths by an outcome; see --estimate" },
    { "baseten_trace", llm_capture_baseten,
      "have no prompt of text, or no lengths by an outcome; see --estimate" }
};


static int
llm_capture_convert_run(int argc, char **argv)
{
    unsigned               i;
    llm_capture_convert_t  c;

    (void) argc;

    for (i = 0; i < llm_capture_nelem(llm_capture_formats); i++) {
        if (llm_capture_asked.to && strcmp(llm_capture_asked.to,
                                           llm_capture_formats[i].name) == 0)
        {
            break;
        }
    }

    if (i == llm_capture_nelem(llm_capture_formats)) {
        llm_capture_die("--to: mooncake_trace, inputs_json, sagemaker,"
                        " burst_gpt or baseten_trace");
    }

    memset(&c, 0, sizeof(c));
    c.path = argv[0];
    c.to = llm_capture_asked.out;
    c.estimate = llm_capture_asked.estimate & 1;
    c.force = llm_capture_asked.force & 1;
    c.t0 = llm_capture_t0(argv[0]);

    if (llm_capture_asked.key_file) {
        llm_capture_key(llm_capture_asked.key_file, c.key);
        c.keyed = 1;
    }

    c.f = llm_capture_rows(argv[0], &c.row, llm_capture_asked.format);
    c.o = llm_capture_outcomes(argv[0], &llm_capture_asked.outcomes);

    /* baseten_trace may have another one in between */

    if (llm_capture_formats[i].convert != llm_capture_baseten) {
        c.out = llm_capture_create(c.to, c.force);
    }

    llm_capture_formats[i].convert(&c);

    if (c.out) {
        llm_capture_commit(c.out);
    }

    if (c.none) {
        llm_capture_say("%" PRIu64 " of %" PRIu64 " rows %s, and were left"
                        " out", c.none, c.rows, llm_capture_formats[i].needs);
    }

    llm_capture_outcomes_free(c.o);
    llm_capture_close(c.f);

    return c.bad || c.none ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_convert = {
    "convert", "FILE",
    "makes another of AIPerf's formats of a capture",
    llm_capture_convert_options, llm_capture_convert_run, 1, 1
};
