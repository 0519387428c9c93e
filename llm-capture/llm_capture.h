
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * llm-capture: from a capture to a replay that can be trusted.  A file for each
 * subcommand, llm_capture_<name>.c; what they share is declared here.
 */

#ifndef _LLM_CAPTURE_H_INCLUDED_
#define _LLM_CAPTURE_H_INCLUDED_


#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <openssl/types.h>


/* exit codes */
#define LLM_CAPTURE_OK       0
#define LLM_CAPTURE_BAD      1      /* AIPerf refuses it; check: not measured */
#define LLM_CAPTURE_FAILED   2      /* usage, files, memory */
#define LLM_CAPTURE_WARNED   3      /* it loads, but see the warnings */


typedef struct {
    const uint8_t      *p;          /* NULL: not there */
    size_t              n;
} llm_capture_str_t;

/* of a literal, sizes of an array of pointers */
#define llm_capture_string(s)  ((llm_capture_str_t) {                         \
    (const uint8_t *) (s), sizeof(s) - 1 })
#define llm_capture_nelem(a)   (sizeof(a) / sizeof((a)[0]))


/* llm_capture.c: options and messages */

typedef struct {
    const char        **p;
    unsigned            n;
} llm_capture_list_t;

typedef struct {
    const char         *name;       /* without dashes; NULL ends the table */
    char                kind;       /* b: unsigned flag, s: const char *,
                                       l: llm_capture_list_t, for each time,
                                       n: uint64_t, f: double, t: ms, double */
    void               *to;
    const char         *value;      /* how help calls it; NULL of a flag */
    const char         *help;
} llm_capture_option_t;

/* those of many commands, into members of their llm_capture_asked */

#define LLM_CAPTURE_OUTCOMES_OPTION                                           \
    { "outcomes", 'l', &llm_capture_asked.outcomes, "FILE",                   \
      "instead of X.outcomes beside X.jsonl; may come again" }

#define LLM_CAPTURE_MANIFEST_OPTION                                           \
    { "manifest", 's', &llm_capture_asked.manifest, "FILE",                   \
      "instead of X.manifest.json beside X.jsonl" }

#define LLM_CAPTURE_FORMAT_OPTION                                             \
    { "format", 's', &llm_capture_asked.format, "NAME",                       \
      "mooncake_trace, raw_payload or auto" }

#define LLM_CAPTURE_OUT_OPTIONS                                               \
    { "out", 's', &llm_capture_asked.out, "OUT", "instead of stdout" },       \
    { "force", 'b', &llm_capture_asked.force, NULL, "overwrite OUT" }

typedef struct {
    const char                  *name;
    const char                  *args;
    const char                  *about;     /* one line */
    const llm_capture_option_t  *options;
    int                        (*run)(int argc, char **argv);   /* exit code */
    int                          least;     /* of argc */
    int                          most;      /* 0: any number */
} llm_capture_command_t;

extern const llm_capture_command_t
    llm_capture_validate, llm_capture_inspect, llm_capture_replay_cmd,
    llm_capture_check, llm_capture_rewrite, llm_capture_hash,
    llm_capture_redact, llm_capture_split, llm_capture_window,
    llm_capture_sample, llm_capture_merge, llm_capture_scale,
    llm_capture_join, llm_capture_convert;

/* a line on stderr */
void llm_capture_say(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* the same, and exit with LLM_CAPTURE_FAILED */
void llm_capture_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* these die without memory */
void *llm_capture_alloc(size_t n);
void *llm_capture_grow(void *p, size_t n);
char *llm_capture_vformat(const char *fmt, va_list args);
char *llm_capture_format(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* 10m, 1.5h, 250ms, 90 (seconds) -> ms; dies of what is none */
double llm_capture_duration(const char *text);

/* 32 hex digits, or the file that holds them */
void llm_capture_key(const char *file, uint8_t key[16]);

/* is the result for a program?  then it is JSON */
unsigned llm_capture_for_program(unsigned json, unsigned text);


/* llm_capture_segment.c: names of what belongs to a file */

typedef struct {
    const char         *path;
    size_t              stem;       /* bytes without .jsonl and .gz */
    size_t              name;       /* and without the time of a rotation */
    const char         *utc;        /* that time; NULL: the live file */
} llm_capture_segment_t;

void llm_capture_segment(llm_capture_segment_t *s, const char *path);

/* of one file?  and < 0, 0, > 0 as one was before the other */
unsigned llm_capture_segment_same(const llm_capture_segment_t *a,
    const llm_capture_segment_t *b);
int llm_capture_segment_cmp(const llm_capture_segment_t *a,
    const llm_capture_segment_t *b);

/* X.jsonl -> X.suffix; to be freed */
char *llm_capture_beside(const char *path, const char *suffix);

/*
 * The one with that suffix of the segment that came next, or of the live file;
 * NULL: there is none.  *segments: the file was rotated, or is a segment.
 */
char *llm_capture_beside_next(const char *path, const char *suffix,
    unsigned *segments);


/* llm_capture_read.c: lines of a file, in memory that does not grow with it */

typedef enum {
    LLM_CAPTURE_PLAIN = 0,
    LLM_CAPTURE_GZIP,
    LLM_CAPTURE_ZSTD,
} llm_capture_packed_e;

typedef struct llm_capture_file_s  llm_capture_file_t;

struct llm_capture_file_s {
    const char         *path;
    uint64_t            line;       /* number of the last one */
    uint64_t            offset;     /* of that line, in the unpacked text */
    uint64_t            size;       /* bytes on disk, 0: not known */
    uint64_t            taken;      /* of them read */
    llm_capture_packed_e  packed;
    unsigned            cut:1;      /* the last line has no line end */
    unsigned            lfs:1;      /* a Git-LFS pointer, not the file */

    /* private */
    int                 fd;
    unsigned            eof:1;
    unsigned            universal:1;
    uint8_t            *buf;
    size_t              cap;
    size_t              pos;
    size_t              end;
    size_t              cr;         /* the next CR from pos on, or end */
    uint64_t            base;       /* of buf in the text */
    const char         *error;
    void               *z;
    EVP_MD_CTX         *digest;
};

/*
 * Opens a file or "-"; dies if it cannot.  universal: CR ends a line as well,
 * as in Python's text files.  What is packed is unpacked.
 */
llm_capture_file_t *llm_capture_open(const char *path, unsigned universal);

/*
 * The next line without its end, which is at text.p[text.n ..] up to `whole`
 * bytes.  1; 0 at the end; -1: it cannot be unpacked, f->error says why.
 * The bytes last until the next call.
 */
int llm_capture_line(llm_capture_file_t *f, llm_capture_str_t *text,
    size_t *whole);

/*
 * The sha256 of the file as it is on disk: to be asked for before the first
 * line; what was not read by the end is read then.
 */
#define LLM_CAPTURE_SHA256  65      /* bytes as hexadecimal digits, with NUL */

void llm_capture_digest(llm_capture_file_t *f);
void llm_capture_digest_end(llm_capture_file_t *f,
    char hex[LLM_CAPTURE_SHA256]);

/* back to the beginning; dies of a pipe */
void llm_capture_rewind(llm_capture_file_t *f);
void llm_capture_close(llm_capture_file_t *f);

/* the sum of what is to be read, for the progress on a terminal */
void llm_capture_progress_total(uint64_t bytes);
void llm_capture_progress(uint64_t bytes);
void llm_capture_progress_end(void);


/* llm_capture_write.c */

typedef struct llm_capture_out_s  llm_capture_out_t;

/* "-" is stdout; 0600; dies if it exists, unless forced, or cannot be made */
llm_capture_out_t *llm_capture_create(const char *path, unsigned force);
void llm_capture_write(llm_capture_out_t *out, const void *p, size_t n);
void llm_capture_puts(llm_capture_out_t *out, const char *s);
void llm_capture_printf(llm_capture_out_t *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* writes what it holds and takes no descriptor until more comes */
void llm_capture_park(llm_capture_out_t *out);

/* the file is there only after this */
void llm_capture_commit(llm_capture_out_t *out);


/* llm_capture_json.c: walks in JSON that was found valid */

typedef struct {
    const uint8_t      *p;
    const uint8_t      *end;
    unsigned            object:1;
} llm_capture_walk_t;

typedef struct {
    llm_capture_str_t   key;        /* between its quotes, as spelled */
    llm_capture_str_t   value;      /* as spelled */
    const uint8_t      *from;       /* the key's quote */
} llm_capture_member_t;

/* 1 if the value is an object or a list: its members follow */
unsigned llm_capture_walk(llm_capture_walk_t *w, llm_capture_str_t value);
unsigned llm_capture_next(llm_capture_walk_t *w, llm_capture_member_t *m);

/* the key, or string with its quotes off, unescaped, is that */
unsigned llm_capture_is(llm_capture_str_t spelled, llm_capture_str_t is);

/* a string's bytes without quotes; value is a string */
llm_capture_str_t llm_capture_unquote(llm_capture_str_t value);

/* unescaped bytes into dst of s.n bytes; returns how many */
size_t llm_capture_unescape(uint8_t *dst, llm_capture_str_t s);

/* the last member of that name; p NULL: none */
llm_capture_str_t llm_capture_member(llm_capture_str_t object,
    const char *name);

/* the value of a path such as a.b.c; as last_member */
llm_capture_str_t llm_capture_path(llm_capture_str_t object, const char *path);

/* of a string a copy, of all else its spelling; with NUL; to be freed */
char *llm_capture_text(llm_capture_str_t value);

/* a number's value; -1 if it is none */
double llm_capture_number(llm_capture_str_t value);

/* s as a JSON string, with its quotes */
void llm_capture_quote(llm_capture_out_t *out, const void *s, size_t n);


/* llm_capture_row.c: a line as a request */

typedef enum {
    LLM_CAPTURE_AUTO = 0,
    LLM_CAPTURE_MOONCAKE,
    LLM_CAPTURE_RAW,
} llm_capture_format_e;

/* members of a row */

typedef enum {
    LLM_CAPTURE_TIMESTAMP = 0,
    LLM_CAPTURE_ID,
    LLM_CAPTURE_SESSION,
    LLM_CAPTURE_PAYLOAD,
    LLM_CAPTURE_INPUT_LENGTH,
    LLM_CAPTURE_OUTPUT_LENGTH,
    LLM_CAPTURE_HASH_IDS,
    LLM_CAPTURE_MESSAGES,
    LLM_CAPTURE_TEXT_INPUT,
    LLM_CAPTURE_TOOLS,
    LLM_CAPTURE_EXTRA,
    LLM_CAPTURE_DELAY,
    LLM_CAPTURE_TYPE,
    LLM_CAPTURE_MEMBERS
} llm_capture_member_e;

typedef struct {
    llm_capture_format_e  format;
    llm_capture_str_t     text;         /* the line without outer spaces */
    llm_capture_str_t     is[LLM_CAPTURE_MEMBERS];  /* as spelled */
    llm_capture_str_t     payload;      /* the body: of a raw row all of it */
    uint8_t               verdict;      /* ngx_http_llm_capture_verdict_t */
} llm_capture_row_t;

/*
 * Judges the text and finds its members.  0: it is blank.  With verdict not
 * OK there are no members.
 */
unsigned llm_capture_row(llm_capture_row_t *row, llm_capture_format_e format,
    llm_capture_str_t text);

/* NULL: it is not packed */
const char *llm_capture_packed_name(llm_capture_packed_e packed);

/* why AIPerf does not read a file that is packed so; NULL: it does */
const char *llm_capture_packed_why(llm_capture_packed_e packed,
    llm_capture_format_e format);

/* the format that the first row of a file is in */
llm_capture_format_e llm_capture_detect(const char *path);
llm_capture_format_e llm_capture_format_of(const char *name, const char *path);
const char *llm_capture_format_name(llm_capture_format_e format);

/* why the scan refused */
const char *llm_capture_why(unsigned verdict);

/*
 * A row that can be used: 1, 0 at the end.  What cannot be used is told on
 * stderr, the first ten of them, and left out; *bad counts.
 */
unsigned llm_capture_row_next(llm_capture_file_t *f, llm_capture_row_t *row,
    uint64_t *bad);

/* opens for llm_capture_row_next() */
llm_capture_file_t *llm_capture_rows(const char *path,
    llm_capture_row_t *row, const char *format);

/* the arrival, ms; 0 if it has none */
double llm_capture_arrival(const llm_capture_row_t *row);

/* hash of the id of its session; 0: it has none */
uint64_t llm_capture_session(const llm_capture_row_t *row);

/* ms since 1970 of timestamp 0; 0 if it is not known */
int64_t llm_capture_t0(const char *path);


/* llm_capture_payload.c: what stands in a body */

typedef enum {
    LLM_CAPTURE_P_MODEL = 0,
    LLM_CAPTURE_P_STREAM,
    LLM_CAPTURE_P_TOOLS,            /* from here on: the text of the request */
    LLM_CAPTURE_P_FUNCTIONS,
    LLM_CAPTURE_P_SYSTEM,
    LLM_CAPTURE_P_INSTRUCTIONS,
    LLM_CAPTURE_P_MESSAGES,
    LLM_CAPTURE_P_INPUT,
    LLM_CAPTURE_P_PROMPT,           /* up to here */
    LLM_CAPTURE_P_MAX_TOKENS,
    LLM_CAPTURE_P_MAX_COMPLETION,
    LLM_CAPTURE_P_MAX_OUTPUT,
    LLM_CAPTURE_P_MIN_TOKENS,
    LLM_CAPTURE_P_IGNORE_EOS,
    LLM_CAPTURE_P_CACHE_SALT,
    LLM_CAPTURE_P_STREAM_OPTIONS,
    LLM_CAPTURE_P_ENCODING,
    LLM_CAPTURE_P_DIMENSIONS,
    LLM_CAPTURE_P_ANTHROPIC,
    LLM_CAPTURE_P_FIELDS
} llm_capture_field_e;

typedef enum {
    LLM_CAPTURE_CHAT = 0,
    LLM_CAPTURE_COMPLETIONS,
    LLM_CAPTURE_RESPONSES,
    LLM_CAPTURE_MESSAGES_API,
    LLM_CAPTURE_EMBEDDINGS,
    LLM_CAPTURE_OTHER,
    LLM_CAPTURE_ENDPOINTS
} llm_capture_endpoint_e;

typedef struct {
    llm_capture_str_t       is[LLM_CAPTURE_P_FIELDS];   /* as spelled */
    llm_capture_endpoint_e  endpoint;
    uint64_t                text;       /* bytes of it, as spelled */
    unsigned                stream:1;
} llm_capture_payload_t;

void llm_capture_payload(llm_capture_payload_t *p, llm_capture_str_t body);
const char *llm_capture_endpoint_name(llm_capture_endpoint_e endpoint);

/* most tokens that the answer may have, as asked for; -1: not said */
double llm_capture_max_tokens(const llm_capture_payload_t *p);


/* llm_capture_model.c: AIPerf's model of a row, and of a whole file */

typedef struct llm_capture_judge_s  llm_capture_judge_t;

llm_capture_judge_t *llm_capture_judge(void);
void llm_capture_judge_free(llm_capture_judge_t *j);

/* NULL: AIPerf takes it; else why not.  Of rows in their order */
const char *llm_capture_judge_row(llm_capture_judge_t *j,
    const llm_capture_row_t *row);


/* llm_capture_table.c: hash -> number, and what is seen */

typedef struct {
    uint64_t           *key;
    uint64_t           *value;      /* NULL: a set */
    size_t              size;       /* a power of 2 */
    size_t              used;
} llm_capture_table_t;

/* the place of the key's value, 0 at first; *found: it was there */
uint64_t *llm_capture_at(llm_capture_table_t *t, uint64_t key,
    unsigned *found);
void llm_capture_table_free(llm_capture_table_t *t);

/* not for secrets: no key */
uint64_t llm_capture_mix(uint64_t seed, const void *p, size_t n);


/* llm_capture_outcomes.c: X.outcomes beside X.jsonl */

typedef struct {
    llm_capture_str_t   text;           /* the row */
    uint64_t            id;             /* 0: none */
    double              status;         /* these: -1: not known */
    double              prompt;
    double              completion;
    double              cached;
    double              ttft;           /* ms; of a stream only */
    double              e2e;
    unsigned            stream:1;
    unsigned            failed:1;       /* aborted, upstream_failed, error */
    unsigned            estimated:1;
} llm_capture_outcome_t;

typedef struct {
    llm_capture_file_t *f;
    int                 fd;
} llm_capture_outcomes_file_t;

typedef struct {
    llm_capture_outcomes_file_t *file;
    unsigned            n;
    unsigned            walked;         /* the one of llm_capture_..._next() */
    unsigned            others:1;       /* some are of rows of other files */
    unsigned            all:1;          /* at is filled */
    llm_capture_table_t at;             /* id -> file and offset + 1 */
    uint8_t            *buf;
    size_t              size;
    uint64_t            rows;
    uint64_t            bad;
} llm_capture_outcomes_t;

/*
 * Of what stands beside the file, or is named; NULL: it is not there.  After a
 * rotation an outcome may stand in the next file.
 */
llm_capture_outcomes_t *llm_capture_outcomes(const char *path,
    const llm_capture_list_t *named);
void llm_capture_outcomes_free(llm_capture_outcomes_t *o);

/*
 * The tokens of a row: by its outcome, by itself, or, if asked, a guess: bytes
 * of text / 4 and max_tokens.  -1: not known.
 */
void llm_capture_lengths(const llm_capture_row_t *row,
    llm_capture_outcomes_t *o, unsigned estimate, double *prompt,
    double *completion);

/* one after another: 1; 0 at the end */
unsigned llm_capture_outcomes_next(llm_capture_outcomes_t *o,
    llm_capture_outcome_t *outcome);

/* hash of the id of a request; 0: it has none */
uint64_t llm_capture_row_id(const llm_capture_row_t *row);

/* the one of that request: 1, or 0: there is none.  The first call reads all */
unsigned llm_capture_outcomes_find(llm_capture_outcomes_t *o,
    const llm_capture_row_t *row, llm_capture_outcome_t *outcome);


/* llm_capture_edit.c: changes in a line, and the rest as it was */

typedef struct {
    const uint8_t      *at;
    size_t              n;          /* bytes that go */
    size_t              from;       /* of text */
    size_t              len;
} llm_capture_edit_t;

typedef struct {
    llm_capture_edit_t *edit;
    size_t              n;
    size_t              size;
    char               *text;
    size_t              text_n;
    size_t              text_size;
} llm_capture_edits_t;

void llm_capture_edit(llm_capture_edits_t *e, const uint8_t *at, size_t n,
    const void *text, size_t len);

/* the member is to have that value, as spelled */
void llm_capture_edit_member(llm_capture_edits_t *e, llm_capture_str_t object,
    const char *name, const char *value);

/* s as a JSON string; to be freed */
char *llm_capture_quoted(const char *s);

/* writes the line and forgets the changes */
void llm_capture_edited(llm_capture_out_t *out, llm_capture_str_t line,
    llm_capture_edits_t *e);


/* llm_capture_pair.c: rows, and their outcomes in a file beside them */

typedef struct {
    llm_capture_out_t  *rows;
    llm_capture_out_t  *outcomes;   /* NULL: there are none */
    uint64_t            n;
    llm_capture_edits_t edits;
} llm_capture_pair_t;

/* outcomes: are to be written too, if path has a name */
llm_capture_pair_t *llm_capture_pair(const char *path, unsigned outcomes,
    unsigned force);

/* timestamp: NULL, or the new one, as spelled; the delay of a turn too */
void llm_capture_pair_row(llm_capture_pair_t *p, const llm_capture_row_t *row,
    llm_capture_outcomes_t *o, const char *timestamp, const char *delay);
void llm_capture_pair_park(llm_capture_pair_t *p);
void llm_capture_pair_commit(llm_capture_pair_t *p);

/* ms as a JSON number: whole, or with three digits behind the point */
const char *llm_capture_ms(double ms, char buf[32]);


/* llm_capture_convert.c, and a file for the formats that need more */

typedef struct {
    const char             *path;
    llm_capture_file_t     *f;
    llm_capture_row_t       row;
    llm_capture_outcomes_t *o;
    llm_capture_out_t      *out;
    const char             *to;         /* the name of the output */
    uint8_t                 key[16];
    int64_t                 t0;         /* ms since 1970 of timestamp 0 */
    uint64_t                rows;
    uint64_t                bad;
    uint64_t                none;       /* rows that have no place there */
    unsigned                keyed:1;
    unsigned                estimate:1;
    unsigned                force:1;
} llm_capture_convert_t;

void llm_capture_inputs_json(llm_capture_convert_t *c);
void llm_capture_baseten(llm_capture_convert_t *c);


/* llm_capture_export.c: of a run of AIPerf */

/* requests that met "METRIC:MS ..." */
void llm_capture_goodput(const char *dir, const char *goals, uint64_t *good,
    uint64_t *rows);

/* does the log say that? */
unsigned llm_capture_logged(const char *dir, const char *what);


#endif /* _LLM_CAPTURE_H_INCLUDED_ */
