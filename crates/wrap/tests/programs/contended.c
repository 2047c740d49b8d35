/* System calls on shared memory that other nodes and threads keep taking away: none may fail and no datagram may get
 * lost. A job of two nodes with two threads each: one makes the calls, three disturb. */
#define _GNU_SOURCE
#include <comem.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 12, BYTES = PAGE * PAGES, ROUNDS = 150, LOCK = 1, WORKER = 2 };

/* The worker's system calls fill the pages; the last byte of each is written by the disturbers too, and checked by
 * nobody. */
struct shared {
    unsigned char received[BYTES];
    unsigned char sent[BYTES];
    long done;
};

static struct shared *shared;
static int failures;

/* Takes pages away: under msi by writing to them; under hlrc by acquiring what others wrote to them. */
static void disturb(void) {
    int done = 0;
    while (!done) {
        comem_lock(LOCK);
        for (size_t page = 0; page < 2 * PAGES; page++) {
            volatile unsigned char *last = shared->received + page * PAGE + PAGE - 1;
            *last = (unsigned char)(*last + 1);
        }
        done = shared->done != 0;
        comem_unlock(LOCK);
    }
}

static void expect(const char *what, int right) {
    if (!right) printf("%s: %s\n", what, strerror(errno)), failures++;
}

/* Whether all bytes but each page's last are `byte`. */
static int filled(const unsigned char *bytes, unsigned char byte) {
    for (size_t i = 0; i < BYTES; i++) {
        if (i % PAGE != PAGE - 1 && bytes[i] != byte) return 0;
    }
    return 1;
}

static void work(void) {
    static unsigned char own[BYTES];
    int pair[2];
    FILE *file = tmpfile();
    if (file == NULL || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) abort();
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char byte = (unsigned char)round;
        memset(own, byte, BYTES);
        if (send(pair[0], own, BYTES, 0) != BYTES) abort();
        expect("recv", recv(pair[1], shared->received, BYTES, MSG_DONTWAIT) == BYTES);
        expect("bytes of recv", filled(shared->received, byte));
        expect("send", send(pair[0], shared->sent, BYTES, MSG_DONTWAIT) == BYTES);
        expect("recv of what was sent", recv(pair[1], own, BYTES, MSG_DONTWAIT) == BYTES && filled(own, 3));
        expect("pwrite", pwrite(fileno(file), shared->sent, BYTES, 0) == BYTES);
        rewind(file);
        expect("fread", fread(shared->sent, 1, BYTES, file) == BYTES);
        expect("bytes of fread", filled(shared->sent, 3));
    }
    fclose(file);
}

static void part(void *argument) {
    (void)argument;
    if (comem_thread() == 0) memset(shared->sent, 3, BYTES);
    comem_barrier();
    if (comem_thread() == WORKER) {
        work();
        comem_lock(LOCK);
        shared->done = 1;
        comem_unlock(LOCK);
        if (failures == 0) puts("ok");
    } else {
        disturb();
    }
}

int main(void) {
    if (comem_start() != 0) return 1;
    const comem_region_options on_zero = {.home = COMEM_HOME_ON, .home_number = 0};
    shared = comem_alloc_all(sizeof *shared, &on_zero);
    comem_parallel(part, NULL);
    fflush(stdout);
    return comem_finish() != 0;
}
