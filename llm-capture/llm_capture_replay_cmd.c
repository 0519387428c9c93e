
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
    const char            *url;
    const char            *tokenizer;
    const char            *model;
    const char            *artifacts;
    uint64_t               concurrency;
} llm_capture_asked = { .url = "http://127.0.0.1:8000" };


static const llm_capture_option_t  llm_capture_replay_cmd_options[] = {
    LLM_CAPTURE_FORMAT_OPTION,
    { "url", 's', &llm_capture_asked.url, "URL",
      "the server (http://127.0.0.1:8000)" },
    { "tokenizer", 's', &llm_capture_asked.tokenizer, "NAME",
      "on Hugging Face, or a folder; default: the model" },
    { "model", 's', &llm_capture_asked.model, "NAME",
      "default: the one in the payloads" },
    { "concurrency", 'n', &llm_capture_asked.concurrency, "N",
      "as fast as N clients can, not by the schedule" },
    { "artifact-dir", 's', &llm_capture_asked.artifacts, "DIR",
      "where AIPerf is to write" },
    { NULL, 0, NULL, NULL, NULL }
};


/* a word of sh */

static void
llm_capture_word(const char *s)
{
    const char  *p;

    if (*s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_./:@%+=,-") == strlen(s))
    {
        fputs(s, stdout);
        return;
    }

    putchar('\'');

    for (p = s; *p; p++) {
        if (*p == '\'') {
            fputs("'\\''", stdout);

        } else {
            putchar(*p);
        }
    }

    putchar('\'');
}


static void
llm_capture_arg(const char *name, const char *value)
{
    printf(" \\\n    --%s", name);

    if (value) {
        putchar(' ');
        llm_capture_word(value);
    }
}


/* what to know of it, as comments for the shell */

static void
llm_capture_notes(const llm_capture_shape_t *s, const char *model)
{
    double  keys, times;

    if (s->models > 1 && llm_capture_asked.model == NULL) {
        printf("# %u models in the payloads; AIPerf sends each as it is: see"
               " llm-capture rewrite --model\n", s->models);
    }

    if (s->payloads && s->stream && s->stream < s->payloads) {
        printf("# %.0f%% of the payloads do not stream: their time to first"
               " token is that of the whole answer\n",
               100 - 100 * (double) s->stream / (double) s->payloads);
    }

    llm_capture_counted(&s->block, &keys, &times);

    if (times > 0 && keys < times) {
        printf("# %.0f%% of the prefix blocks repeat: begin with a cold cache,"
               " or see llm-capture rewrite --cache-salt\n",
               100 * (1 - keys / times));
    }

    if (s->manifest && s->manifest->json && s->manifest->dropped) {
        printf("# %" PRIu64 " requests (%.3g%%) were dropped when it was"
               " recorded: see llm-capture inspect\n", s->manifest->dropped,
               100 * llm_capture_missing(s->manifest));
    }

    if (llm_capture_asked.tokenizer == NULL) {
        printf("# --tokenizer: the model's own, or a folder of it, so that"
               " lengths are right\n");
    }

    if (*model == '\0') {
        puts("# the payloads name no model: give --model");
    }
}


static int
llm_capture_replay_cmd_run(int argc, char **argv)
{
    char                  *count;
    unsigned               i, most, type, types, schedule;
    const char            *model, *why;
    llm_capture_shape_t   *s;

    (void) argc;

    s = llm_capture_shape(argv[0], llm_capture_asked.format, NULL, NULL);
    llm_capture_progress_end();

    why = llm_capture_packed_why(s->packed, s->format);

    if (why) {
        llm_capture_say("%s: %s", argv[0], why);
        return LLM_CAPTURE_BAD;
    }

    if (s->bad || s->rows == 0) {
        llm_capture_say("%s: AIPerf would refuse it: see llm-capture validate",
                        argv[0]);
        return LLM_CAPTURE_BAD;
    }

    for (type = LLM_CAPTURE_CHAT, types = 0, i = 0; i < LLM_CAPTURE_ENDPOINTS;
         i++)
    {
        if (s->endpoint[i]) {
            type = i;
            types++;
        }
    }

    if (types > 1) {
        llm_capture_say("%s: payloads of %u endpoint types, and AIPerf sends"
                        " all to one: see llm-capture split --by endpoint",
                        argv[0], types);
        return LLM_CAPTURE_BAD;
    }

    for (most = 0, i = 1; i < s->models; i++) {
        most = s->model_n[i] > s->model_n[most] ? i : most;
    }

    model = llm_capture_asked.model ? llm_capture_asked.model
            : s->models ? s->model[most] : "";
    schedule = s->format == LLM_CAPTURE_MOONCAKE && s->times.rows == s->rows
               && llm_capture_asked.concurrency == 0;

    llm_capture_notes(s, model);

    /* AIPerf keeps a copy of all payloads that others can read, or not */

    fputs("umask 077; AIPERF_DATASET_MMAP_CACHE_ENABLED=false \\\n"
          "aiperf profile", stdout);
    llm_capture_arg("model", *model ? model : "MODEL");
    llm_capture_arg("endpoint-type", llm_capture_endpoint_name(type));

    if (s->stream || s->payloads == 0) {
        llm_capture_arg("streaming", NULL);
    }

    llm_capture_arg("url", llm_capture_asked.url);
    llm_capture_arg("custom-dataset-type", llm_capture_format_name(s->format));
    llm_capture_arg("input-file", argv[0]);

    if (llm_capture_asked.tokenizer) {
        llm_capture_arg("tokenizer", llm_capture_asked.tokenizer);
    }

    if (schedule) {
        llm_capture_arg("fixed-schedule", NULL);

    } else {
        if (s->times.rows) {
            llm_capture_arg("no-fixed-schedule", NULL);
        }

        count = llm_capture_format("%" PRIu64, llm_capture_asked.concurrency
                                   ? llm_capture_asked.concurrency : 1);
        llm_capture_arg("concurrency", count);
        free(count);

        /* without it AIPerf sends ten */

        count = llm_capture_format("%" PRIu64, s->rows);
        llm_capture_arg("request-count", count);
        free(count);
    }

    if (llm_capture_asked.artifacts) {
        llm_capture_arg("artifact-dir", llm_capture_asked.artifacts);
    }

    putchar('\n');
    llm_capture_shape_free(s);

    return LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_replay_cmd = {
    "replay-cmd", "FILE",
    "prints the command of AIPerf 0.13.0 that replays a file",
    llm_capture_replay_cmd_options, llm_capture_replay_cmd_run, 1, 1
};
