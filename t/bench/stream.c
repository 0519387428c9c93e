
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Both ends of streaming answers: an upstream that gives each request a stream
 * of events, one write each, and clients that ask for them.
 *
 *     stream -s EVENTS -p PAUSE         listens, says its port, for ever
 *     stream -c CLIENTS -n REQUESTS -u URI PORT
 *                                       says how many answers came whole
 *
 * PAUSE: microseconds between two events.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


#define BODY                                                                  \
    "{\"model\":\"m\",\"stream\":true,\"messages\":"                          \
    "[{\"role\":\"user\",\"content\":\"Hi\"}]}"


static long         events, pause_us, requests, port;
static const char  *uri = "/";
static long         whole;


static void
die(const char *what)
{
    perror(what);
    exit(1);
}


static int
new_socket(void)
{
    int  fd, one;

    fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (fd == -1) {
        die("socket()");
    }

    one = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    return fd;
}


/* up to and with the text, of less than 64 bytes; 0: the connection's end */

static int
read_until(int fd, char *buf, size_t size, const char *text)
{
    size_t   n;
    ssize_t  got;

    for (n = 0; /* void */ ; /* void */) {
        got = read(fd, buf + n, size - n - 1);

        if (got <= 0) {
            return 0;
        }

        n += (size_t) got;
        buf[n] = '\0';

        if (strstr(n > 128 + (size_t) got ? buf + n - got - 128 : buf, text)) {
            return 1;
        }

        if (n > size / 2) {
            memmove(buf, buf + n - 64, 64);
            n = 64;
        }
    }
}


static int
put(int fd, const char *text)
{
    size_t   n;
    ssize_t  got;

    for (n = strlen(text); n; n -= (size_t) got, text += got) {
        got = write(fd, text, n);

        if (got <= 0) {
            return 0;
        }
    }

    return 1;
}


static void *
serve(void *data)
{
    int              fd;
    long             i;
    char             buf[65536], piece[512], event[400];
    struct timespec  ts;

    fd = (int) (long) data;
    ts.tv_sec = 0;
    ts.tv_nsec = pause_us * 1000;

    while (read_until(fd, buf, sizeof(buf), "\"Hi\"}]}")) {

        if (!put(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n"))
        {
            break;
        }

        for (i = 0; i < events; i++) {
            snprintf(event, sizeof(event),
                     "data: {\"id\":\"chatcmpl-1\",\"object\":"
                     "\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
                     "\"choices\":[{\"index\":0,\"delta\":{\"content\":"
                     "\" word%ld\"},\"logprobs\":null,"
                     "\"finish_reason\":null}]}\n\n", i);
            snprintf(piece, sizeof(piece), "%zx\r\n%s\r\n", strlen(event),
                     event);

            if (!put(fd, piece)) {
                goto done;
            }

            nanosleep(&ts, NULL);
        }

        if (!put(fd, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")) {
            break;
        }
    }

done:

    close(fd);

    return NULL;
}


static void
listen_for_ever(void)
{
    int                 fd, c;
    pthread_t           thread;
    socklen_t           len;
    struct sockaddr_in  sin;

    fd = new_socket();
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(sin);

    if (bind(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
        || listen(fd, 512) == -1
        || getsockname(fd, (struct sockaddr *) &sin, &len) == -1)
    {
        die("listen()");
    }

    printf("%d\n", ntohs(sin.sin_port));
    fflush(stdout);

    for ( ;; ) {
        c = accept(fd, NULL, NULL);

        if (c == -1) {
            die("accept()");
        }

        (void) setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int) { 1 },
                          sizeof(int));

        if (pthread_create(&thread, NULL, serve, (void *) (long) c) != 0) {
            die("pthread_create()");
        }

        (void) pthread_detach(thread);
    }
}


static void *
ask(void *data)
{
    int                 fd;
    long                i;
    char                head[512], buf[65536];
    struct sockaddr_in  sin;

    (void) data;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    fd = new_socket();

    if (connect(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1) {
        die("connect()");
    }

    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
             "application/json\r\nContent-Length: %zu\r\n\r\n" BODY, uri,
             sizeof(BODY) - 1);

    for (i = 0; i < requests; i++) {
        if (!put(fd, head)
            || !read_until(fd, buf, sizeof(buf), "[DONE]\n\n\r\n0\r\n\r\n"))
        {
            break;
        }

        __atomic_fetch_add(&whole, 1, __ATOMIC_RELAXED);
    }

    close(fd);

    return NULL;
}


int
main(int argc, char **argv)
{
    int        o;
    long       i, clients;
    pthread_t  thread[256];

    clients = 0;

    while ((o = getopt(argc, argv, "s:p:c:n:u:")) != -1) {
        switch (o) {
        case 's':
            events = atol(optarg);
            break;
        case 'p':
            pause_us = atol(optarg);
            break;
        case 'c':
            clients = atol(optarg);
            break;
        case 'n':
            requests = atol(optarg);
            break;
        case 'u':
            uri = optarg;
            break;
        default:
            return 2;
        }
    }

    if (clients == 0) {
        listen_for_ever();
    }

    if (optind == argc || clients > 256) {
        return 2;
    }

    port = atol(argv[optind]);

    for (i = 0; i < clients; i++) {
        if (pthread_create(&thread[i], NULL, ask, NULL) != 0) {
            die("pthread_create()");
        }
    }

    for (i = 0; i < clients; i++) {
        pthread_join(thread[i], NULL);
    }

    printf("%ld\n", whole);

    return 0;
}
