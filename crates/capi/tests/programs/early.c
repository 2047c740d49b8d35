/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * early: node 0 reads pages that node 1 has written, one fault a page, again and again; the argument says which threads
 * of the program's own there are beside: "alone", "beside" or "gone".
 */
#include <comem.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAGES = 512, PAGE_LONGS = 512, ROUNDS = 6 };

static void *wait_here(void *forever) {
    if (forever) pause();
    return NULL;
}

/* In odd rounds the fault is one of a store. */
static int read_all(long *at, long round) {
    int wrong = 0;
    for (int i = 0; i < PAGES; i++) {
        long *page = at + (i * 107 % PAGES) * PAGE_LONGS;
        if (round % 2) page[1] = round;
        wrong += page[0] != round || page[2] != round;
    }
    return wrong;
}

static int write_all(long *at, long round) {
    const long theirs = round == 1 ? 0 : round - (round % 2 ? 2 : 1);
    int wrong = 0;
    for (int i = 0; i < PAGES; i++) {
        long *page = at + i * PAGE_LONGS;
        wrong += page[1] != theirs;
        page[0] = page[2] = round;
    }
    return wrong;
}

int main(int argc, char **argv) {
    comem_region_options there = {0};
    pthread_t thread;
    long *at;
    int wrong = 0;
    if (comem_start_args(&argc, argv) != 0 || argc < 2) return 3;
    there.home = COMEM_HOME_ON;
    there.home_number = 1;
    at = comem_alloc_all(PAGES * PAGE_LONGS * sizeof *at, &there);
    if (strcmp(argv[1], "alone")) {
        if (pthread_create(&thread, NULL, wait_here, strcmp(argv[1], "gone") ? argv : NULL)) return 3;
        if (!strcmp(argv[1], "gone")) pthread_join(thread, NULL);
    }
    for (long round = 1; round <= ROUNDS; round++) {
        if (comem_node() == 1) wrong += write_all(at, round);
        comem_barrier();
        if (comem_node() == 0) wrong += read_all(at, round);
        comem_barrier();
    }
    if (wrong || comem_node() == 0) printf("early: %d wrong\n", wrong);
    return comem_finish() != 0 || wrong;
}
