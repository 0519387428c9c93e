
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the sanitizers do in the nginx of t/check/sanitizers.t.  Not by the
 * environment: nginx clears it for a new binary.  REPORTS: a directory that
 * workers can write to.  A stack, and a search for leaks, would be the work of
 * one more child; t/check/valgrind.t looks for leaks.
 */

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);


const char *
__asan_default_options(void)
{
    return "log_path=" REPORTS "/report:detect_leaks=0";
}


const char *
__ubsan_default_options(void)
{
    return "print_stacktrace=0";
}
