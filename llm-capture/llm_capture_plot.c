
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llm_capture_shape.h"


#define LLM_CAPTURE_COLUMNS  60
#define LLM_CAPTURE_POINTS   240
#define LLM_CAPTURE_STEPS    48


/* llm_capture_plot.py, as a string */

static const char  llm_capture_plot_py[] =
#include "llm_capture_plot.inc"
;


/* requests in each of n equal parts of the time */

static void
llm_capture_parts(const llm_capture_times_t *t, double *part, unsigned n)
{
    size_t    i;
    double    from, to, at, seconds, left, some;
    unsigned  k;

    memset(part, 0, n * sizeof(double));

    from = floor(t->first / 1000);
    to = floor(t->last / 1000) + 1;
    seconds = (to - from) / n;

    /* a second lies in more than one part, as a rule */

    for (i = 0; i < t->size; i++) {

        if (t->n[i] == 0) {
            continue;
        }

        at = ((double) t->base + (double) i - from) / seconds;

        for (left = 1 / seconds; left > 1e-9; left -= some) {
            k = (unsigned) at;
            k = k < n ? k : n - 1;
            some = k + 1 - at;
            some = some <= 1e-9 || some > left ? left : some;
            part[k] += t->n[i] * some * seconds;
            at += some;
        }
    }
}


static void
llm_capture_bar(FILE *to, const char *name, const double *part, unsigned n,
    const char *from, const char *till)
{
    double       most;
    unsigned     i, level;

    static const char *const  blocks[] = {
        " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"
    };

    for (most = 0, i = 0; i < n; i++) {
        most = part[i] > most ? part[i] : most;
    }

    fprintf(to, "%-16s", name);

    for (i = 0; i < n; i++) {
        level = most > 0 ? (unsigned) ceil(8 * part[i] / most) : 0;
        fputs(blocks[level], to);
    }

    fprintf(to, "\n%-16s%s%*s\n", "", from, (int) (n - strlen(from)), till);
}


static void
llm_capture_bar_hist(FILE *to, const char *name, const llm_capture_hist_t *h,
    const char *unit)
{
    char      from[32], till[32];
    double    part[LLM_CAPTURE_COLUMNS], low, high;
    unsigned  i;
    uint64_t  bin[LLM_CAPTURE_COLUMNS];

    if (h->n < 2) {
        return;
    }

    low = llm_capture_quantile(h, 0);
    low = low < 1 ? 1 : low;
    high = h->max > 2 * low ? h->max : 2 * low;

    llm_capture_bins(h, low, high, bin, LLM_CAPTURE_COLUMNS);

    for (i = 0; i < LLM_CAPTURE_COLUMNS; i++) {
        part[i] = (double) bin[i];
    }

    snprintf(from, sizeof(from), "%.0f", low);
    snprintf(till, sizeof(till), "%.0f %s", high, unit);

    llm_capture_bar(to, name, part, LLM_CAPTURE_COLUMNS, from, till);
}


void
llm_capture_bars(const llm_capture_shape_t *s, FILE *to)
{
    char    till[32];
    double  part[LLM_CAPTURE_COLUMNS];

    fputs("\n", to);

    if (s->times.rows > 1) {
        llm_capture_parts(&s->times, part, LLM_CAPTURE_COLUMNS);
        snprintf(till, sizeof(till), "%.0f s",
                 (s->times.last - s->times.first) / 1000);
        llm_capture_bar(to, "arrivals", part, LLM_CAPTURE_COLUMNS, "0", till);
    }

    llm_capture_bar_hist(to, "input", &s->input, "tokens");
    llm_capture_bar_hist(to, "output", &s->output, "tokens");
    llm_capture_bar_hist(to, "first token", &s->ttft, "ms");
}


static void
llm_capture_plot_hist(FILE *to, const char *name, const llm_capture_hist_t *h,
    const char *from)
{
    double    low, high;
    unsigned  i;
    uint64_t  bin[LLM_CAPTURE_STEPS];

    if (h->n == 0) {
        return;
    }

    low = llm_capture_quantile(h, 0);
    low = low < 1 ? 1 : low;
    high = h->max > 2 * low ? h->max : 2 * low;

    llm_capture_bins(h, low, high, bin, LLM_CAPTURE_STEPS);
    fprintf(to, ",\"%s\":{\"low\":%.10g,\"high\":%.10g,\"from\":\"%s\","
            "\"p50\":%.10g,\"p99\":%.10g,\"n\":[", name, low, high, from,
            llm_capture_quantile(h, .5), llm_capture_quantile(h, .99));

    for (i = 0; i < LLM_CAPTURE_STEPS; i++) {
        fprintf(to, "%s%" PRIu64, i ? "," : "", bin[i]);
    }

    fputs("]}", to);
}


/* seconds in which requests were dropped, as the manifest says */

static void
llm_capture_plot_gaps(const llm_capture_shape_t *s, FILE *to)
{
    size_t   i;
    double   from;
    json_t  *gap, *gaps;

    if (s->manifest == NULL) {
        return;
    }

    gaps = json_object_get(s->manifest->json, "gaps");
    from = json_number_value(json_object_get(s->manifest->json, "t0"))
           + floor(s->times.first / 1000) * 1000;

    fputs(",\"gaps\":[", to);

    json_array_foreach(gaps, i, gap) {
        fprintf(to, "%s[%.15g,%.15g]", i ? "," : "",
                (json_number_value(json_object_get(gap, "from")) - from) / 1000,
                (json_number_value(json_object_get(gap, "to")) - from) / 1000);
    }

    fputs("]", to);
}


static void
llm_capture_plot_data(const llm_capture_shape_t *s, FILE *to)
{
    double    part[LLM_CAPTURE_POINTS], seconds;
    unsigned  i, n;

    fprintf(to, "{\"requests\":%" PRIu64, s->rows);

    if (s->times.rows > 1) {
        seconds = floor(s->times.last / 1000) - floor(s->times.first / 1000)
                  + 1;
        n = seconds < LLM_CAPTURE_POINTS ? (unsigned) seconds
                                         : LLM_CAPTURE_POINTS;
        llm_capture_parts(&s->times, part, n);
        fprintf(to, ",\"seconds\":%.0f,\"arrivals\":[", seconds);

        for (i = 0; i < n; i++) {
            fprintf(to, "%s%.6g", i ? "," : "", part[i] * n / seconds);
        }

        fputs("]", to);
        llm_capture_plot_gaps(s, to);
    }

    llm_capture_plot_hist(to, "input", &s->input, s->input_from);
    llm_capture_plot_hist(to, "output", &s->output, s->output_from);
    llm_capture_plot_hist(to, "ttft", &s->ttft, "outcomes");
    fputs("}", to);
}


void
llm_capture_plot(const llm_capture_shape_t *s, const char *path,
    unsigned force)
{
    int     status, fd[2];
    char   *temp;
    FILE   *to;
    pid_t   pid;

    if (strlen(path) < 5 || (strcmp(path + strlen(path) - 4, ".svg") != 0
                             && strcmp(path + strlen(path) - 4, ".png") != 0))
    {
        llm_capture_die("--plot %s: a name that ends in .svg or .png", path);
    }

    if (!force && access(path, F_OK) == 0) {
        llm_capture_die("%s: exists; --force overwrites it", path);
    }

    temp = llm_capture_format("%.*s.%ld%s", (int) strlen(path) - 4, path,
                              (long) getpid(), path + strlen(path) - 4);

    if (pipe(fd) == -1 || (pid = fork()) == -1) {
        llm_capture_die("python3: %s", strerror(errno));
    }

    if (pid == 0) {
        umask(077);
        dup2(fd[0], STDIN_FILENO);
        close(fd[0]);
        close(fd[1]);
        execlp("python3", "python3", "-c", llm_capture_plot_py, temp, s->path,
               NULL);
        _exit(127);
    }

    close(fd[0]);
    to = fdopen(fd[1], "w");
    llm_capture_plot_data(s, to);
    fclose(to);

    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) { /* void */ }

    if (status != 0) {
        unlink(temp);
        llm_capture_die("--plot: it needs python3 with matplotlib");
    }

    if (force ? rename(temp, path) : link(temp, path)) {
        status = errno;
        unlink(temp);
        llm_capture_die("%s: %s", path, strerror(status));
    }

    unlink(temp);
    free(temp);
}
