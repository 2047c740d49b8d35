/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * callers: what one thread of every node does together is done by each node's first thread or by another, while the
 * first waits outside of Comem for the other's end, or for a lock that the other holds. Two threads a node.
 */
#define _GNU_SOURCE 1
#include <comem.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 24, NODES_MAX = 4 };

static long *made[2][ROUNDS];
static pthread_barrier_t held;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Whether the first thread of this node is the one that calls. */
static int is_firsts(int round) {
    return round >> comem_node() & 1;
}

static long *allocate(void) {
    long *memory = comem_alloc_all(NODES_MAX * sizeof *memory, NULL);
    if (!memory) fail(comem_last_error());
    return memory;
}

static void *allocate_one(void *place) {
    *(long **)place = allocate();
    return NULL;
}

static void each_in_turn(void) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t other;
        if (is_firsts(round)) {
            allocate_one(&made[0][round]);
        } else if (pthread_create(&other, NULL, allocate_one, &made[0][round]) || pthread_join(other, NULL)) {
            fail("no other thread");
        }
    }
}

static void under_locks(void *unused) {
    (void)unused;
    uint64_t lock = (uint64_t)comem_node();
    for (int round = 0; round < ROUNDS; round++) {
        int calls = (comem_thread() % 2 == 0) == is_firsts(round);
        if (!calls) pthread_barrier_wait(&held);
        comem_lock(lock);
        if (calls) {
            pthread_barrier_wait(&held);
            made[1][round] = allocate();
        }
        comem_unlock(lock);
        pthread_barrier_wait(&held);
    }
}

/* All have got the same memory each time, and none of it twice. */
static void compare(void *unused) {
    (void)unused;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        if (comem_thread() % 2 == 0) made[i / ROUNDS][i % ROUNDS][comem_node()] = i + 1;
    }
    comem_barrier();
    for (int i = 0; i < 2 * ROUNDS; i++) {
        for (int node = 0; node < comem_nodes(); node++) {
            if (made[i / ROUNDS][i % ROUNDS][node] != i + 1) fail("not the same memory");
        }
    }
}

int main(void) {
    if (comem_start() != 0) fail(comem_last_error());
    pthread_barrier_init(&held, NULL, 2);
    each_in_turn();
    comem_parallel(under_locks, NULL);
    comem_parallel(compare, NULL);
    int node = comem_node();
    comem_finish();
    if (node == 0) printf("callers: ok\n");
    return 0;
}
