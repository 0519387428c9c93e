
/*
 * Copyright (C) the llm-capture authors
 */

#include "load.h"


#define DATA      0
#define HEADERS   1
#define RST       3
#define SETTINGS  4
#define PING      6
#define GOAWAY    7
#define WINDOW    8

static void
digits(uint8_t *p, unsigned n, uint64_t v)
{
    while (n--) {
        p[n] = (uint8_t) ('0' + v % 10);
        v /= 10;
    }
}


static void
put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t) (v >> 24);
    p[1] = (uint8_t) (v >> 16);
    p[2] = (uint8_t) (v >> 8);
    p[3] = (uint8_t) v;
}


static uint32_t
get32(const uint8_t *p)
{
    return (uint32_t) p[0] << 24 | (uint32_t) p[1] << 16
           | (uint32_t) p[2] << 8 | p[3];
}


static uint8_t *
frame(uint8_t *p, size_t len, int type, int flags, uint32_t stream)
{
    put32(p, (uint32_t) len << 8);
    p[3] = (uint8_t) type;
    p[4] = (uint8_t) flags;
    put32(p + 5, stream);

    return p + 9;
}


/* a header without a place in any table; index: of its name, 15 at most */

static uint8_t *
literal(uint8_t *p, unsigned index, const char *text)
{
    size_t  len;

    len = strlen(text);

    if (index < 15) {
        *p++ = (uint8_t) index;

    } else {
        *p++ = 15;
        *p++ = (uint8_t) (index - 15);
    }

    *p++ = (uint8_t) len;             /* short ones alone */
    memcpy(p, text, len);

    return p + len;
}


static void
layout_h2(conn_t *c, const request_t *r)
{
    char      text[64];
    size_t    n, done;
    uint8_t  *p, *start;

    start = p = c->out + 9;
    *p++ = 0x83;                      /* POST */
    *p++ = 0x86;                      /* http */
    p = literal(p, 4, r->uri);
    snprintf(text, sizeof(text), "127.0.0.1:%d", r->port);
    p = literal(p, 1, text);
    p = literal(p, 31, "application/json");
    snprintf(text, sizeof(text), "%zu", r->len);
    p = literal(p, 28, text);

    (void) frame(c->out, (size_t) (p - start), HEADERS, 4, 1);
    c->body = (size_t) (p - c->out);

    for (done = 0; done < r->len; done += n) {
        n = r->len - done < FRAME_LEN ? r->len - done : FRAME_LEN;
        p = frame(p, n, DATA, done + n == r->len, 1);
        memcpy(p, r->body + done, n);
        p += n;
    }

    c->out_len = (size_t) (p - c->out);
}


void
wire_layout(conn_t *c, const request_t *r)
{
    int  n;

    c->out = malloc(r->len + r->len / FRAME_LEN * 9 + 1024);

    if (c->out == NULL) {
        exit(2);
    }

    c->initial_window = 65535;
    c->window = 65535;

    if (r->h2) {
        layout_h2(c, r);
        return;
    }

    n = sprintf((char *) c->out,
                "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                "Content-Type: application/json\r\n"
                "Content-Length: %zu\r\n\r\n", r->uri, r->port, r->len);
    memcpy(c->out + n, r->body, r->len);
    c->body = (size_t) n;
    c->out_len = (size_t) n + r->len;
}


void
wire_next(conn_t *c, const request_t *r, uint64_t n, uint64_t uri,
    uint64_t ns)
{
    size_t    len;
    uint8_t  *p;

    p = memmem(c->out + c->body, 512 < c->out_len - c->body
                                 ? 512 : c->out_len - c->body,
               STAMP_MARK, sizeof(STAMP_MARK) - 1);

    if (p == NULL) {
        fprintf(stderr, "no place for the stamp\n");
        exit(2);
    }

    p += sizeof(STAMP_MARK) - 1;
    digits(p, 12, n);
    digits(p + 13, 19, ns);

    p = memmem(c->out, c->body, "/n", 2);

    if (p && strstr(r->uri, "/n0000")) {
        digits(p + 2, URI_LEN, uri);
    }

    c->pos = 0;
    c->stop = c->out_len;

    if (!r->h2) {
        return;
    }

    c->stream = c->stream ? c->stream + 2 : 1;
    c->stream_window = c->initial_window;

    for (len = 0; len < c->out_len; len += 9 + (get32(c->out + len) >> 8)) {
        put32(c->out + len + 5, c->stream);
    }

    c->stop = 0;
    wire_allow(c);
}


/* whole frames, as far as both windows reach */

void
wire_allow(conn_t *c)
{
    size_t   len;
    int64_t  n;

    while (c->busy && c->stop < c->out_len) {
        len = get32(c->out + c->stop) >> 8;
        n = c->out[c->stop + 3] == DATA ? (int64_t) len : 0;

        if (n > c->window || n > c->stream_window) {
            break;
        }

        c->window -= n;
        c->stream_window -= n;
        c->stop += 9 + len;
    }
}


/* of the module's upstream: a short answer with a length */

static int
answer_h1(conn_t *c)
{
    char    *end, *p;
    size_t   len;

    c->in[c->in_len] = '\0';
    end = strstr((char *) c->in, "\r\n\r\n");

    if (end == NULL) {
        return c->in_len < 4096 ? ANSWER_MORE : ANSWER_BAD;
    }

    p = strcasestr((char *) c->in, "content-length:");

    if (p == NULL || p > end) {
        return ANSWER_BAD;
    }

    len = (size_t) (end + 4 - (char *) c->in) + strtoul(p + 15, NULL, 10);

    if (c->in_len < len) {
        return ANSWER_MORE;
    }

    c->in_len = 0;

    return strncmp((char *) c->in, "HTTP/1.1 200", 12) == 0
           && c->pos == c->out_len ? ANSWER_OK : ANSWER_BAD;
}


static void
settings(conn_t *c, const uint8_t *p, size_t len)
{
    int64_t  v;

    for ( /* void */ ; len >= 6; p += 6, len -= 6) {
        if (p[0] == 0 && p[1] == 4) {
            v = get32(p + 2);
            c->stream_window += v - c->initial_window;
            c->initial_window = v;
        }
    }
}


/* returns what the stream came to */

static int
answer_frame(conn_t *c, const uint8_t *p, size_t len, uint8_t *reply,
    size_t *n)
{
    uint32_t        stream;
    const uint8_t  *payload;

    stream = get32(p + 5) & 0x7fffffff;
    payload = p + 9;

    switch (p[3]) {

    case SETTINGS:
        if (!(p[4] & 1)) {
            settings(c, payload, len);
            (void) frame(reply + *n, 0, SETTINGS, 1, 0);
            *n += 9;
        }
        break;

    case PING:
        if (!(p[4] & 1)) {
            memcpy(frame(reply + *n, 8, PING, 1, 0), payload, 8);
            *n += 17;
        }
        break;

    case WINDOW:
        if (stream == 0) {
            c->window += get32(payload);

        } else if (stream == c->stream) {
            c->stream_window += get32(payload);
        }
        break;

    case HEADERS:
        /* a change of the table's size may stand before ":status: 200" */
        while (len && (*payload & 0xe0) == 0x20) {
            len--;

            if ((*payload++ & 0x1f) == 0x1f) {
                while (len-- && *payload++ & 0x80) { /* void */ }
            }
        }

        if (len == 0 || *payload != 0x88) {
            return ANSWER_BAD;
        }

        /* fall through */

    case DATA:
        if (p[4] & 1) {
            return c->pos == c->out_len ? ANSWER_OK : ANSWER_BAD;
        }
        break;

    case RST:
    case GOAWAY:
        return ANSWER_BAD;
    }

    return ANSWER_MORE;
}


int
wire_answer(conn_t *c, const request_t *r, uint8_t *reply, size_t *n)
{
    int     rc, got;
    size_t  len, done;

    *n = 0;

    if (!r->h2) {
        return answer_h1(c);
    }

    rc = ANSWER_MORE;

    for (done = 0; c->in_len - done >= 9; ) {
        len = get32(c->in + done) >> 8;

        if (c->in_len - done < 9 + len || *n > 96) {
            break;
        }

        got = answer_frame(c, c->in + done, len, reply, n);
        rc = got == ANSWER_MORE ? rc : got;
        done += 9 + len;
    }

    memmove(c->in, c->in + done, c->in_len - done);
    c->in_len -= done;
    wire_allow(c);

    return rc;
}
