
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * usage: memcpy [-r cpu] [-t seconds] BYTES WINDOW RING
 *
 * One bare memcpy of BYTES into shared memory of RING bytes, as a worker does
 * it: the source has just been filled (nginx read it from a socket), the
 * target goes on by a header and BYTES and returns to the front behind WINDOW.
 * -r: a thread on that processor reads what was copied, as the helper does.
 *
 * Prints nanoseconds per copy: the median, over `seconds`, less what the clock
 * takes.  What filling the source takes is not counted.
 */

#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>


#define SOURCES  4                        /* connections */
#define HEADER   128                      /* frame, begin, path */
#define SAMPLES  1000000


static uint8_t               *ring;
static size_t                 bytes, window, size;
static _Atomic uint64_t       head;       /* copies made */
static atomic_int             stop;
static volatile uint64_t      sink;
static uint32_t               took[SAMPLES];


static uint64_t
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


static size_t
target(uint64_t n)
{
    size_t  step, in_window;

    step = (bytes + HEADER + 31) / 32 * 32;
    in_window = window / step ? window / step : 1;

    return (size_t) (n % in_window) * step;
}


static void *
reader(void *cpu)
{
    size_t     i;
    uint64_t   n, sum;
    cpu_set_t  set;

    CPU_ZERO(&set);
    CPU_SET((unsigned) (intptr_t) cpu, &set);
    (void) pthread_setaffinity_np(pthread_self(), sizeof(set), &set);

    sum = 0;

    for (n = 0; !atomic_load_explicit(&stop, memory_order_relaxed); ) {
        if (n >= atomic_load_explicit(&head, memory_order_acquire)) {
            continue;
        }

        for (i = 0; i + 64 <= bytes; i += 64) {
            sum += ring[target(n) + i];
        }

        n++;
    }

    sink = sum;

    return NULL;
}


static int
by_value(const void *a, const void *b)
{
    uint32_t  x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return x < y ? -1 : x > y;
}


static double
median(uint64_t n)
{
    qsort(took, n, sizeof(uint32_t), by_value);

    return took[n / 2];
}


int
main(int argc, char **argv)
{
    int        c, cpu;
    double     seconds, copy;
    uint8_t   *source[SOURCES], *fill;
    uint64_t   n, start, end;
    pthread_t  thread;

    cpu = -1;
    seconds = .3;

    while ((c = getopt(argc, argv, "r:t:")) != -1) {
        switch (c) {
        case 'r': cpu = atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        default: return 2;
        }
    }

    if (argc - optind != 3) {
        return 2;
    }

    bytes = strtoul(argv[optind], NULL, 10);
    window = strtoul(argv[optind + 1], NULL, 10);
    size = strtoul(argv[optind + 2], NULL, 10);

    ring = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1,
                0);
    fill = malloc(bytes);

    if (ring == MAP_FAILED || fill == NULL || bytes + HEADER + 32 > size
        || window > size)
    {
        return 2;
    }

    memset(ring, 1, window > bytes + HEADER + 32 ? window
                                                 : bytes + HEADER + 32);
    memset(fill, 2, bytes);

    for (n = 0; n < SOURCES; n++) {
        source[n] = malloc(bytes);

        if (source[n] == NULL) {
            return 2;
        }
    }

    if (cpu >= 0
        && pthread_create(&thread, NULL, reader, (void *) (intptr_t) cpu) != 0)
    {
        return 2;
    }

    end = now() + (uint64_t) (seconds * 1e9);

    for (n = 0; n < SAMPLES && now() < end; n++) {
        fill[n % bytes]++;
        memcpy(source[n % SOURCES], fill, bytes);
        __asm__ volatile ("" ::: "memory");

        start = now();
        memcpy(ring + target(n) + HEADER, source[n % SOURCES], bytes);
        __asm__ volatile ("" ::: "memory");
        took[n] = (uint32_t) (now() - start);

        atomic_store_explicit(&head, n + 1, memory_order_release);
    }

    atomic_store(&stop, 1);

    if (cpu >= 0) {
        pthread_join(thread, NULL);
    }

    copy = median(n);

    /* the clock itself */

    for (n = 0; n < 10000; n++) {
        start = now();
        took[n] = (uint32_t) (now() - start);
    }

    printf("%.1f\n", copy - median(n));

    return 0;
}
