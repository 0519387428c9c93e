
/*
 * Copyright (C) the llm-capture authors
 */

/* gzip, which AIPerf unpacks too, and zstd */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "llm_capture_read.h"


typedef struct {
    z_stream            stream;
    ZSTD_DCtx          *zstd;       /* NULL: a gzip */
    unsigned            within:1;   /* a member, a frame */
    uint8_t             in[64 * 1024];
} llm_capture_unpack_t;


llm_capture_packed_e
llm_capture_packed(const uint8_t *p, size_t n)
{
    if (n >= 2 && memcmp(p, "\x1f\x8b", 2) == 0) {
        return LLM_CAPTURE_GZIP;
    }

    if (n >= 4 && memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0) {
        return LLM_CAPTURE_ZSTD;
    }

    return LLM_CAPTURE_PLAIN;
}


const char *
llm_capture_packed_name(llm_capture_packed_e packed)
{
    static const char *const  name[] = { NULL, "gzip", "zstd" };

    return name[packed];
}


const char *
llm_capture_packed_why(llm_capture_packed_e packed, llm_capture_format_e format)
{
    if (packed == LLM_CAPTURE_ZSTD) {
        return "a zstd: AIPerf unpacks a gzip alone: zstd -d";
    }

    if (packed && format == LLM_CAPTURE_RAW) {
        return "a gzip: AIPerf unpacks a mooncake_trace, no raw_payload";
    }

    return NULL;
}


void *
llm_capture_unpacker(llm_capture_file_t *f, size_t n)
{
    llm_capture_unpack_t  *u;

    u = llm_capture_alloc(sizeof(llm_capture_unpack_t));

    if (f->packed == LLM_CAPTURE_ZSTD) {
        u->zstd = ZSTD_createDCtx();

        if (u->zstd == NULL) {
            llm_capture_die("no memory");
        }

    } else if (inflateInit2(&u->stream, 16 + MAX_WBITS) != Z_OK) {
        llm_capture_die("no memory");
    }

    if (n > sizeof(u->in)) {
        llm_capture_die("%s: what is packed cannot be read from a pipe",
                        f->path);
    }

    memcpy(u->in, f->buf, n);
    u->stream.next_in = u->in;
    u->stream.avail_in = (uInt) n;

    return u;
}


void
llm_capture_unpacked(llm_capture_file_t *f)
{
    llm_capture_unpack_t  *u;

    u = f->z;

    if (u == NULL) {
        return;
    }

    if (u->zstd) {
        ZSTD_freeDCtx(u->zstd);

    } else {
        inflateEnd(&u->stream);
    }

    free(u);
    f->z = NULL;
}


/* flags of a member that mean nothing: Python reads past them, zlib does not */

static void
llm_capture_gzip_member(llm_capture_file_t *f, llm_capture_unpack_t *u)
{
    size_t  n;

    while (u->stream.avail_in < 4) {
        memmove(u->in, u->stream.next_in, u->stream.avail_in);
        u->stream.next_in = u->in;

        n = llm_capture_read_some(f, u->in + u->stream.avail_in,
                                  sizeof(u->in) - u->stream.avail_in);
        if (n == 0) {
            return;
        }

        u->stream.avail_in += (uInt) n;
    }

    u->stream.next_in[3] &= 0x1f;
}


/* as Python's gzip: members one after another, zeros behind them */

static void
llm_capture_inflate(llm_capture_file_t *f, llm_capture_unpack_t *u)
{
    int  rc;

    if (!u->within) {
        while (u->stream.avail_in && u->stream.total_in
               && *u->stream.next_in == 0)
        {
            u->stream.next_in++;
            u->stream.avail_in--;
        }

        if (u->stream.avail_in == 0) {
            return;
        }

        if (u->stream.total_in) {
            inflateReset(&u->stream);
        }

        llm_capture_gzip_member(f, u);
        u->within = 1;
    }

    rc = inflate(&u->stream, Z_NO_FLUSH);

    if (rc == Z_STREAM_END) {
        u->within = 0;

    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        f->error = "the gzip is broken";
    }
}


static void
llm_capture_unzstd(llm_capture_file_t *f, llm_capture_unpack_t *u)
{
    size_t          left;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  out;

    in = (ZSTD_inBuffer) { u->stream.next_in, u->stream.avail_in, 0 };
    out = (ZSTD_outBuffer) { u->stream.next_out, u->stream.avail_out, 0 };

    left = ZSTD_decompressStream(u->zstd, &out, &in);

    if (ZSTD_isError(left)) {
        f->error = "the zstd is broken";
        return;
    }

    u->within = (left != 0);
    u->stream.next_in += in.pos;
    u->stream.avail_in -= (uInt) in.pos;
    u->stream.next_out += out.pos;
    u->stream.avail_out -= (uInt) out.pos;
}


size_t
llm_capture_unpack(llm_capture_file_t *f, uint8_t *p, size_t n)
{
    llm_capture_unpack_t  *u;

    u = f->z;
    u->stream.next_out = p;
    u->stream.avail_out = (uInt) n;

    while (u->stream.avail_out == n && f->error == NULL) {

        if (u->stream.avail_in == 0) {
            u->stream.next_in = u->in;
            u->stream.avail_in = (uInt) llm_capture_read_some(f, u->in,
                                                              sizeof(u->in));
            if (u->stream.avail_in == 0) {
                f->eof = 1;

                if (u->within) {
                    f->error = u->zstd ? "the zstd is cut off"
                                       : "the gzip is cut off";
                }

                break;
            }
        }

        if (u->zstd) {
            llm_capture_unzstd(f, u);

        } else {
            llm_capture_inflate(f, u);
        }
    }

    if (f->error) {
        f->eof = 1;
    }

    return n - u->stream.avail_out;
}
