
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The load generator: POSTs of one body, each with a stamp of its own, over
 * keep-alive connections of HTTP/1.1 or HTTP/2.
 *
 *     load.c    the schedule, the connections, the figures
 *     wire.c    the bytes of a request, and what an answer says
 *
 * A request is laid out once per connection; for the next one only the stamp,
 * the number in the URI and the stream's id are written anew.
 */

#ifndef _LOAD_H_INCLUDED_
#define _LOAD_H_INCLUDED_


#define _GNU_SOURCE

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* "000000000123-0000000000123456789": number, and CLOCK_MONOTONIC of sending */
#define STAMP_MARK  "\"bench\":\""
#define STAMP_LEN   32
#define URI_LEN     4                     /* digits in place of #### */
#define FRAME_LEN   16384                 /* of HTTP/2, payload */


typedef struct {
    int             h2;
    const char     *uri;
    int             port;
    const uint8_t  *body;
    size_t          len;
} request_t;


typedef struct {
    int             fd;

    uint8_t        *out;                  /* the request, as sent */
    size_t          out_len;
    size_t          pos;                  /* sent so far */
    size_t          stop;                 /* may be sent so far */
    size_t          body;                 /* where it begins in out */

    /* HTTP/2 */
    uint32_t        stream;
    int64_t         window;               /* of the connection */
    int64_t         stream_window;
    int64_t         initial_window;

    uint8_t         in[65536];
    size_t          in_len;
    int             writable;             /* is waited for */
    int             busy;                 /* a request is under way */

    uint64_t        due;                  /* ns, when it was to be sent */
} conn_t;


/* what an answer says */
enum { ANSWER_MORE, ANSWER_OK, ANSWER_BAD };


void wire_layout(conn_t *c, const request_t *r);
/* the next request: pos and stop are set */
void wire_next(conn_t *c, const request_t *r, uint64_t n, uint64_t uri,
    uint64_t ns);
/* up to where the windows let it be sent */
void wire_allow(conn_t *c);
/* takes what came; bytes to be sent back are put to *reply (128 of them) */
int wire_answer(conn_t *c, const request_t *r, uint8_t *reply, size_t *n);


#endif /* _LOAD_H_INCLUDED_ */
