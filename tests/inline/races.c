/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * races.c: what needs a memory that is coherent without synchronisation. All nodes take part.
 *
 *   atomics   each thread adds COUNT times to one number of each width, and all that was added is there
 *   flags     threads pass a turn on by plain stores that the next one spins on, and add to a plain number while they
 *             have it
 *   neighbours  each thread counts in its own bytes of lines that all share
 *   magic     values that look like those of invalid memory come through every width, as integers and as floating-point
 *             numbers
 *
 *     comem run -n 4 --engine direct ./races --count 1000000
 */
#include "common.h"

#include <stdatomic.h>

enum { BYTES = 4096, TURNS = 100, MAGIC = 0xfffdfffdu };

static int64_t count = 20000;

typedef struct {
    _Atomic uint64_t eight;
    _Atomic uint32_t four;
    _Atomic uint16_t two;
    _Atomic uint8_t one;
    _Atomic uint64_t swapped; /* by compare-and-swap */
    volatile int turn;
    char apart[128];
    volatile long taken;
    long wrong[64];
} board;

static board *shared;
static uint8_t *bytes;
static uint64_t *magic;

static void require(int *wrong, int holds, const char *what, int64_t found) {
    if (holds) return;
    if (!(*wrong)++) fprintf(stderr, "thread %d: %s: %" PRId64 "\n", comem_thread(), what, found);
}

static void count_atomically(void) {
    for (int64_t i = 0; i < count; i++) {
        atomic_fetch_add(&shared->eight, 1);
        if (i % 4) continue;
        atomic_fetch_add(&shared->four, 1);
        atomic_fetch_add(&shared->two, 1);
        atomic_fetch_add(&shared->one, 1);
        uint64_t old = atomic_load(&shared->swapped);
        while (!atomic_compare_exchange_weak(&shared->swapped, &old, old + 3)) {}
    }
}

/* Plain stores and loads: the processor keeps both in order, and so does Comem. */
static void take_turns(int me, int all) {
    for (int round = 0; round < TURNS; round++) {
        while (shared->turn % all != me) {}
        shared->taken++;
        shared->turn++;
    }
}

static void count_bytes(int me, int all) {
    for (int round = 0; round < 100; round++) {
        for (int i = me; i < BYTES; i += all) bytes[i]++;
    }
}

/* Words that look invalid, at every distance from each other, seen by all. */
static void write_magic(int me, int all) {
    for (int i = me; i < 512; i += all) magic[i] = i % 3 ? (uint64_t)MAGIC << 32 | MAGIC : (uint64_t)MAGIC << (i % 33);
}

static void read_magic(int *wrong) {
    for (int i = 0; i < 512; i++) {
        const uint64_t right = i % 3 ? (uint64_t)MAGIC << 32 | MAGIC : (uint64_t)MAGIC << (i % 33);
        require(wrong, magic[i] == right, "a word of 8 bytes", i);
        double as_float;
        memcpy(&as_float, &magic[i], 8);
        require(wrong, memcmp(&as_float, &right, 8) == 0, "a double", i);
        for (int part = 0; part < 2; part++) {
            const uint32_t half = ((volatile uint32_t *)magic)[2 * i + part];
            require(wrong, half == (uint32_t)(right >> (32 * part)), "a word of 4 bytes", i);
        }
        for (int part = 0; part < 4; part++) {
            const uint16_t quarter = ((volatile uint16_t *)magic)[4 * i + part];
            require(wrong, quarter == (uint16_t)(right >> (16 * part)), "a word of 2 bytes", i);
        }
        for (int part = 0; part < 8; part++) {
            const uint8_t byte = ((volatile uint8_t *)magic)[8 * i + part];
            require(wrong, byte == (uint8_t)(right >> (8 * part)), "a byte", i);
        }
    }
}

static void work(void *unused) {
    (void)unused;
    const int me = comem_thread(), all = comem_threads();
    int wrong = 0;
    count_atomically();
    take_turns(me, all);
    count_bytes(me, all);
    write_magic(me, all);
    comem_barrier();
    const int64_t quarter = (count + 3) / 4 * all;
    require(&wrong, shared->eight == (uint64_t)count * (uint64_t)all, "additions of 8 bytes", (int64_t)shared->eight);
    require(&wrong, shared->four == (uint32_t)quarter, "additions of 4 bytes", shared->four);
    require(&wrong, shared->two == (uint16_t)quarter, "additions of 2 bytes", shared->two);
    require(&wrong, shared->one == (uint8_t)quarter, "additions of 1 byte", shared->one);
    require(&wrong, shared->swapped == 3 * (uint64_t)quarter, "swaps", (int64_t)shared->swapped);
    require(&wrong, shared->turn == TURNS * all && shared->taken == TURNS * all, "turns", shared->taken);
    for (int i = 0; i < BYTES; i++) require(&wrong, bytes[i] == 100, "a counter of a byte", i);
    read_magic(&wrong);
    shared->wrong[me] = wrong;
    comem_barrier();
}

int main(int argc, char **argv) {
    const option options[] = {{"--count", &count, NULL, NULL, "additions of each thread"}};
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 3;
    read_options(argc, argv, options, 1);
    shared = comem_alloc_all(sizeof *shared, NULL);
    bytes = comem_alloc_all(BYTES, NULL);
    magic = comem_alloc_all(512 * sizeof *magic, NULL);
    comem_parallel(work, NULL);
    long wrong = 0;
    for (int i = 0; i < comem_threads(); i++) wrong += shared->wrong[i];
    if (comem_node() == 0)
        printf("races nodes=%d threads=%d count=%" PRId64 " %s\n", comem_nodes(), comem_threads(), count,
               wrong ? "WRONG" : "ok");
    return comem_finish() || wrong;
}
