/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * heap: shared memory for ordinary loads and stores, through every function that deals with it. The same source runs on
 * one node and many, sequentially, and with plain threads.
 */
#include <comem.h>

#include "check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(COMEM_SEQUENTIAL) || defined(COMEM_PTHREADS)
enum { HAS_HEAP = 0 }; /* memory is malloc()'s */
#else
enum { HAS_HEAP = 1 };
#endif

enum { LENGTH = 5000, LOCK = 3 };

/* A list whose elements lie wherever who adds them allocates them. */
typedef struct element {
    struct element *next;
    long number;
} element;

typedef struct shared {
    element *head;
    long sum;
    long table[LENGTH];
} shared;

static shared *all;

static void write_and_read(void *unused) {
    (void)unused;
    uint64_t low, high;
    comem_split(LENGTH, &low, &high);
    for (uint64_t i = low; i < high; i++) {
        CHECK(all->table[i] == 0);
        all->table[i] = (long)i * 3;
    }
    comem_barrier();
    long sum = 0;
    for (int i = 0; i < LENGTH; i++) sum += all->table[i];
    CHECK(sum == 3L * LENGTH * (LENGTH - 1) / 2);
    comem_lock(LOCK);
    all->sum += sum;
    comem_unlock(LOCK);
    comem_barrier();
    CHECK(all->sum == sum * comem_threads());
    comem_rendezvous();
}

static void add_and_count(void *unused) {
    (void)unused;
    enum { EACH = 20 };
    for (long n = 0; n < EACH; n++) {
        element *new = comem_alloc(sizeof *new);
        CHECK(new && new->next == NULL && new->number == 0);
        new->number = comem_thread() * EACH + n;
        comem_lock(LOCK);
        new->next = all->head;
        all->head = new;
        comem_unlock(LOCK);
    }
    comem_barrier();
    long count = 0, sum = 0, expected = (long)comem_threads() * EACH;
    for (const element *e = all->head; e; e = e->next, count++) sum += e->number;
    CHECK(count == expected && sum == expected * (expected - 1) / 2);
    comem_barrier();
    /* Whoever takes an element frees it, wherever it was allocated. */
    for (;;) {
        comem_lock(LOCK);
        element *first = all->head;
        if (first) all->head = first->next;
        comem_unlock(LOCK);
        if (!first) break;
        CHECK(comem_free(first) == 0);
    }
    comem_barrier();
}

static void every_placement(void *unused) {
    (void)unused;
    int places[] = {COMEM_HOME_BLOCK, COMEM_HOME_CYCLIC, COMEM_HOME_ON, COMEM_HOME_FIRST_TOUCH, COMEM_HOME_AUTOMATIC};
    const char *engines[] = {NULL, "msi", "hlrc", "scope", "lrc", "multicast"};
    for (unsigned n = 0; n < 30; n++) {
        comem_region_options options = {engines[n / 5], "block", places[n % 5], 0, 8192, 2, 0};
        char *block = comem_alloc_with(70000, &options);
        CHECK(block && (uintptr_t)block % 8192 == 0 && comem_is_shared(block) == HAS_HEAP);
        memset(block, (int)n + 1, 70000);
        CHECK(comem_label(block, "another name") == 0);
        CHECK(block[0] == (char)(n + 1) && block[69999] == (char)(n + 1));
        CHECK(comem_free(block) == 0);
    }
    comem_barrier();
}

/* One region under each engine for several writers, whatever the job's is: what is written without a lock before a
 * critical section is seen after a later one, in the region under hlrc; in the other, what was written in it. */
static long *unlocked, *locked;

static void publish(void *unused) {
    (void)unused;
    for (long round = 1; round <= 8; round++) {
        if (round % comem_threads() == comem_thread()) {
            for (int i = 0; i < LENGTH; i += 100) unlocked[i] = round;
            comem_lock(LOCK);
            for (int i = 0; i < LENGTH; i += 100) locked[i] = round;
            comem_unlock(LOCK);
        }
        for (long seen = 0; seen < round;) {
            comem_lock(LOCK);
            seen = locked[0];
            for (int i = 0; i < LENGTH; i += 100) CHECK(locked[i] == seen);
            comem_unlock(LOCK);
        }
        for (int i = 0; i < LENGTH; i += 100) CHECK(unlocked[i] == round);
        comem_barrier();
    }
}

static void two_engines(void) {
    comem_region_options options = {0};
    options.engine = "hlrc";
    unlocked = comem_alloc_all(LENGTH * sizeof *unlocked, &options);
    options.engine = "scope";
    locked = comem_alloc_all(LENGTH * sizeof *locked, &options);
    CHECK(unlocked && locked);
    comem_parallel(publish, NULL);
    CHECK(comem_free(unlocked) == 0 && comem_free(locked) == 0);
}

int main(int argc, char **argv) {
    int stack = 0;
    CHECK(!comem_is_shared(&stack));
    if (comem_start_args(&argc, argv) != 0) return 3;
    CHECK(!comem_is_shared(&stack));
    comem_region_options options = {0};
    options.label = "everything";
    options.home = COMEM_HOME_AUTOMATIC;
    all = comem_alloc_all(sizeof *all, &options);
    CHECK(all && comem_is_shared(all) == HAS_HEAP);
    comem_parallel(write_and_read, NULL);
    comem_parallel(add_and_count, NULL);
    comem_parallel(every_placement, NULL);
    two_engines();
    CHECK(comem_prefetch(all, sizeof *all, 0) == 0 && comem_prefetch(all->table, sizeof all->table, 1) == 0);
    CHECK(comem_free(NULL) == 0);
    int *constant = comem_alloc_all(40000, NULL);
    CHECK(comem_freeze(constant) == 0 && constant[9999] == 0);
    int node = comem_node();
    comem_finish();
    if (failures == 0 && node == 0) printf("heap: ok\n");
    return failures != 0;
}
