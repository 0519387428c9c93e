
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * inputs_json: the payloads by session.  The file is read once for the places
 * of its payloads, and a payload again when its session is written.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_capture.h"


typedef struct {
    uint64_t            offset;
    uint64_t            n;
    uint64_t            next;       /* of its session, + 1; 0: the last */
} llm_capture_place_t;

typedef struct {
    char               *id;
    uint64_t            first;      /* place + 1 */
    uint64_t            last;
} llm_capture_group_t;

typedef struct {
    llm_capture_place_t  *place;
    size_t                places;
    size_t                size;
    llm_capture_group_t  *group;
    size_t                groups;
    size_t                room;
    llm_capture_table_t   at;
} llm_capture_groups_t;


static llm_capture_group_t *
llm_capture_group(llm_capture_groups_t *g, const llm_capture_row_t *row,
    uint64_t line)
{
    uint64_t           *at, alone;
    llm_capture_str_t   s;

    s = row->is[LLM_CAPTURE_SESSION];
    at = &alone;
    alone = 0;

    if (s.n > 2 && s.p[0] == '"') {
        at = llm_capture_at(&g->at, llm_capture_mix(7, s.p, s.n), NULL);
    }

    if (*at) {
        return &g->group[*at - 1];
    }

    if (g->groups == g->room) {
        g->room = g->room ? 2 * g->room : 1024;
        g->group = llm_capture_grow(g->group,
                                    g->room * sizeof(llm_capture_group_t));
    }

    *at = g->groups + 1;
    g->group[g->groups] = (llm_capture_group_t) {
        at == &alone ? llm_capture_format("\"row-%" PRIu64 "\"", line)
                     : llm_capture_format("%.*s", (int) s.n, s.p), 0, 0 };

    return &g->group[g->groups++];
}


static void
llm_capture_place(llm_capture_convert_t *c, llm_capture_groups_t *g)
{
    llm_capture_group_t  *group;

    if (g->places == g->size) {
        g->size = g->size ? 2 * g->size : 1024;
        g->place = llm_capture_grow(g->place,
                                    g->size * sizeof(llm_capture_place_t));
    }

    group = llm_capture_group(g, &c->row, c->f->line);

    g->place[g->places] = (llm_capture_place_t) {
        c->f->base + (uint64_t) (c->row.payload.p - c->f->buf),
        c->row.payload.n, 0 };
    g->places++;

    if (group->last) {
        g->place[group->last - 1].next = g->places;

    } else {
        group->first = g->places;
    }

    group->last = g->places;
}


static void
llm_capture_copy(llm_capture_convert_t *c, int fd,
    const llm_capture_place_t *place)
{
    char      buf[65536];
    ssize_t   n;
    uint64_t  done, left;

    for (done = 0; done < place->n; done += (uint64_t) n) {
        left = place->n - done;
        n = pread(fd, buf, left < sizeof(buf) ? left : sizeof(buf),
                  (off_t) (place->offset + done));

        if (n <= 0) {
            llm_capture_die("%s: %s", c->path,
                            n ? strerror(errno) : "it has become shorter");
        }

        llm_capture_write(c->out, buf, (size_t) n);
    }
}


void
llm_capture_inputs_json(llm_capture_convert_t *c)
{
    int                   fd;
    size_t                i;
    uint64_t              k;
    llm_capture_groups_t  g;

    if (c->f->packed || strcmp(c->path, "-") == 0) {
        llm_capture_die("%s: inputs_json is by session: give a file that is"
                        " not packed", c->path);
    }

    memset(&g, 0, sizeof(g));

    while (llm_capture_row_next(c->f, &c->row, &c->bad)) {
        c->rows++;

        if (c->row.payload.p) {
            llm_capture_place(c, &g);

        } else {
            c->none++;
        }
    }

    fd = open(c->path, O_RDONLY|O_CLOEXEC);

    if (fd == -1) {
        llm_capture_die("%s: %s", c->path, strerror(errno));
    }

    llm_capture_puts(c->out, "{\"data\":[");

    for (i = 0; i < g.groups; i++) {
        llm_capture_printf(c->out, "%s\n{\"session_id\":%s,\"payloads\":[",
                           i ? "," : "", g.group[i].id);

        for (k = g.group[i].first; k; k = g.place[k - 1].next) {
            llm_capture_puts(c->out, k == g.group[i].first ? "\n" : ",\n");
            llm_capture_copy(c, fd, &g.place[k - 1]);
        }

        llm_capture_puts(c->out, "]}");
        free(g.group[i].id);
    }

    llm_capture_puts(c->out, "\n]}\n");

    close(fd);
    llm_capture_table_free(&g.at);
    free(g.place);
    free(g.group);
}
