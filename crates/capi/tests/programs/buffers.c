/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the program hands to Comem may lie in shared memory that has to be fetched first: messages to other nodes and to
 * the own one while messages come, elements of arrays whose neighbours in the unit others are writing, and results of
 * reductions.
 */
#include <comem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                       \
    do {                                                                                            \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, comem_last_error()); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

enum { PAGES = 16, PAGE = 4096, BYTES = 64, ROUNDS = 60 };

static char *pages;
static comem_array elements;

static char letter(int round, int thread) { return (char)('a' + (round + thread) % 26); }

/* A thread's place in the page of a round. */
static char *place(int round, int thread) { return pages + round * 7 % PAGES * PAGE + thread * BYTES; }

static int holds(const char *bytes, char expected) { return bytes[0] == expected && bytes[BYTES - 1] == expected; }

/* Fills every thread's place: on all nodes but one the page has ended then. */
static void fill(int round) {
    if (comem_thread() == round % comem_threads()) {
        for (int t = 0; t < comem_threads(); t++) memset(place(round, t), letter(round, t), BYTES);
    }
    CHECK(comem_barrier() == 0);
}

static void messages(int round) {
    const int me = comem_thread(), all = comem_threads();
    fill(round);
    for (int to = 0; to < all; to++) CHECK(comem_post(to, place(round, me), BYTES) == 0);
    int sum = 0;
    for (int count = 0; count < all; count++) {
        CHECK(comem_receive(NULL, place(round + 1, me), BYTES) == BYTES);
        for (int t = 0; t < all; t++) {
            if (holds(place(round + 1, me), letter(round, t))) sum += t + 1;
        }
    }
    CHECK(sum == all * (all + 1) / 2);
    CHECK(comem_barrier() == 0);
}

static void arrays(int round) {
    const int me = comem_thread(), other = (me + 1) % comem_threads();
    fill(round);
    CHECK(comem_write(elements, (uint64_t)me, place(round, me)) == 0);
    CHECK(comem_barrier() == 0);
    CHECK(comem_read(elements, (uint64_t)other, place(round + 1, me)) == 0);
    CHECK(holds(place(round + 1, me), letter(round, other)));
    CHECK(comem_barrier() == 0);
}

static void reductions(int round) {
    const int me = comem_thread(), all = comem_threads();
    int64_t *mine = (int64_t *)(void *)place(round, me);
    *mine = round;
    CHECK(comem_barrier() == 0);
    CHECK(comem_reduce_i64(COMEM_SUM, mine, 1) == 0);
    CHECK(comem_barrier() == 0);
    for (int t = 0; t < all; t++) CHECK(*(int64_t *)(void *)place(round, t) == (int64_t)round * all);
    CHECK(comem_barrier() == 0);
}

static void work(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        messages(round);
        arrays(round);
        reductions(round);
    }
}

int main(void) {
    CHECK(comem_start() == 0);
    pages = comem_alloc_all((size_t)PAGES * PAGE, NULL);
    CHECK(pages != NULL && comem_threads() * BYTES <= PAGE);
    CHECK(comem_create(&elements, BYTES, (uint64_t)comem_threads(), NULL) == 0);
    CHECK(comem_parallel(work, NULL) == 0);
    if (comem_node() == 0) puts("buffers: ok");
    return comem_finish() != 0;
}
