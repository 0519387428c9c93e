
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What an answer says of itself: why it ended, and the tokens it took.  Read
 * in the helper from the beginning and the end of the answer, as JSON or as
 * the events of a stream.  Pure: no nginx header.
 *
 * Read at these places, of a plain answer and of each event alike:
 *
 *     usage               usage, message.usage, response.usage
 *       prompt              prompt_tokens, or input_tokens (with Anthropic's
 *                           cache_read_input_tokens and
 *                           cache_creation_input_tokens, which it leaves out)
 *       completion          completion_tokens, or output_tokens
 *       cached              {prompt,input}_tokens_details.cached_tokens,
 *                           cache_read_input_tokens, prompt_cache_hit_tokens
 *       reasoning           {completion,output}_tokens_details
 *                             .reasoning_tokens, reasoning_tokens
 *     finish              choices[].finish_reason by choices[].index,
 *                         stop_reason, delta.stop_reason, of Responses the
 *                         status, or the reason why it is incomplete
 *     text                of the first choice, choices[].text: of JSON that
 *                         is whole, or of the events up to a gap; as much as
 *                         there is room for, in whole characters
 *     error               error, "object":"error", "type":"error", a status
 *                         "failed"
 *
 * A later value replaces an earlier one, each for itself, so that the parts of
 * a usage may come in several events.  A token count is an integer from 0 to
 * 2147483647; null is none; all else is refused: it counts as absent and in
 * `refused`.  (Where a document has an integer beyond 64 bits, a count may be
 * spelled as a float, 7.0.)
 *
 * An answer that is larger than its windows:
 *
 *     a stream    the whole events of both windows are read; of the event
 *                 that the second window cuts, its end as below
 *     JSON        of the first window the members that are whole; then of the
 *                 second one the members of the outermost object and of the
 *                 one choice that it cuts, as in ngx_http_llm_capture_rest.h
 *
 * so nothing is ever taken from within a string.  A choice that is known to be
 * there without its reason has an empty one.
 *
 * A stream without completion tokens, or whose last such count is followed by
 * events with content or reasoning (an early one, or it was broken off), has
 * the number of all such events, or that count if it is more, marked as an
 * estimate.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_OUTCOME_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_OUTCOME_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* bytes of a window at most; a tree of it takes up to 40 times as many */
#define NGX_HTTP_LLM_CAPTURE_ANSWER   (1024 * 1024)

/* choices whose reasons are kept; those behind are left out */
#define NGX_HTTP_LLM_CAPTURE_CHOICES  16

/*
 * Bytes of a reason with its NUL: letters, digits and "_.-"; one that has
 * others, or is longer, is "other"
 */
#define NGX_HTTP_LLM_CAPTURE_REASON   32

#define NGX_HTTP_LLM_CAPTURE_TOKENS   2147483647


typedef struct {
    const uint8_t  *head;       /* the first bytes */
    size_t          head_len;
    const uint8_t  *tail;       /* the last of those that follow */
    size_t          tail_len;
    uint64_t        total;      /* bytes of the answer */
    uint64_t        deltas;     /* events of a stream, as the worker counted */
    unsigned        stream:1;   /* text/event-stream; else JSON */
    unsigned        complete:1; /* it came to its end */

    /* for the text of a completion; NULL: not asked for */
    char           *text;
    size_t          text_size;
} ngx_http_llm_capture_answer_t;


typedef struct {
    int64_t         prompt;     /* tokens; -1: not known */
    int64_t         completion;
    int64_t         cached;     /* of prompt */
    int64_t         reasoning;
    unsigned        estimated:1;    /* completion */
    unsigned        error:1;
    uint32_t        refused;    /* counts that were none */
    size_t          text_len;   /* bytes of the answer's text */
    uint32_t        choices;    /* of reason */
    char            reason[NGX_HTTP_LLM_CAPTURE_CHOICES]
                          [NGX_HTTP_LLM_CAPTURE_REASON];
} ngx_http_llm_capture_outcome_t;


/*
 * Fills all of *o.  Returns 0, or -1 if a window is too large or there is no
 * memory; *o then says that nothing is known.
 */

int ngx_http_llm_capture_outcome(ngx_http_llm_capture_outcome_t *o,
    const ngx_http_llm_capture_answer_t *answer);


#endif /* _NGX_HTTP_LLM_CAPTURE_OUTCOME_H_INCLUDED_ */
