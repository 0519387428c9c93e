
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <string.h>

#include "llm_capture.h"


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *out;
    unsigned               both;
    unsigned               output_length;
    unsigned               force;
} llm_capture_asked = { .out = "-" };


static const llm_capture_option_t  llm_capture_join_options[] = {
    LLM_CAPTURE_OUTCOMES_OPTION,
    { "both", 'b', &llm_capture_asked.both, NULL,
      "leave out rows that have no outcome" },
    { "output-length", 'b', &llm_capture_asked.output_length, NULL,
      "output_length, too, which AIPerf compares with" },
    { "format", 's', &llm_capture_asked.format, "NAME",
      "mooncake_trace or auto" },
    LLM_CAPTURE_OUT_OPTIONS,
    { NULL, 0, NULL, NULL, NULL }
};


static int
llm_capture_join_run(int argc, char **argv)
{
    char                     length[64];
    uint64_t                 rows, bad, joined;
    llm_capture_row_t        row;
    llm_capture_out_t       *out;
    llm_capture_file_t      *f;
    llm_capture_edits_t      e;
    llm_capture_outcome_t    r;
    llm_capture_outcomes_t  *o;

    (void) argc;

    memset(&e, 0, sizeof(e));
    f = llm_capture_rows(argv[0], &row, llm_capture_asked.format);
    o = llm_capture_outcomes(argv[0], &llm_capture_asked.outcomes);

    if (o == NULL) {
        llm_capture_die("%s: there are no outcomes beside it", argv[0]);
    }

    if (row.format == LLM_CAPTURE_RAW) {
        llm_capture_die("%s: a raw_payload has no ids, and all of it goes to"
                        " the server", argv[0]);
    }

    out = llm_capture_create(llm_capture_asked.out, llm_capture_asked.force);
    rows = bad = joined = 0;

    while (llm_capture_row_next(f, &row, &bad)) {
        const uint8_t  *at = row.text.p + row.text.n - 1;

        rows++;

        if (!llm_capture_outcomes_find(o, &row, &r)) {

            if (!llm_capture_asked.both) {
                llm_capture_edited(out, row.text, &e);
            }

            continue;
        }

        joined++;

        if (llm_capture_asked.output_length && r.completion >= 1) {
            snprintf(length, sizeof(length), "%.0f", r.completion);
            llm_capture_edit_member(&e, row.text, "output_length", length);
        }

        llm_capture_edit(&e, at, 0, ",\"outcome\":", 11);
        llm_capture_edit(&e, at, 0, r.text.p, r.text.n);
        llm_capture_edited(out, row.text, &e);
    }

    llm_capture_commit(out);
    llm_capture_say("%s: %" PRIu64 " rows, %" PRIu64 " with an outcome, %"
                    PRIu64 " outcomes without a row%s", argv[0], rows, joined,
                    o->rows - joined, o->others ? ", some of other files" : "");
    llm_capture_outcomes_free(o);
    llm_capture_close(f);

    return bad || joined < rows ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_join = {
    "join", "FILE", "puts each row's outcome into it",
    llm_capture_join_options, llm_capture_join_run, 1, 1
};
