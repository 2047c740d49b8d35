/* Memory whose accesses the program checks itself: what several nodes do to the same lines comes out right.
 *
 *     lines ROUNDS
 */
#include "checked.h"
#include "comem.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 64 /* threads */
#define CELLS 4096
#define NAME 128

static long rounds;
static int wrong;

#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "thread %d, line %d: %s\n", comem_thread(), __LINE__, #condition);                        \
            __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);                                                            \
        }                                                                                                             \
    } while (0)

/* Everything that the threads share. Counters of different threads lie side by side in one line. */
struct shared {
    uint64_t counter[MOST];
    uint8_t byte[MOST];
    uint16_t half[MOST];
    uint64_t sum, under_lock, turns;
    uint32_t sum32;
    uint32_t flag, answer;
    uint64_t cell[CELLS];
    char name[MOST][NAME];
    comem_region_options options[MOST];
    comem_object_options array;
};

static struct shared *all;
static comem_array_u64 object; /* an element for each thread */

/* Each thread has its own counter, and no line has one thread only. */
static void false_sharing(int me, int threads)
{
    for (long round = 0; round < rounds; round++) {
        STORE(&all->counter[me], LOAD(&all->counter[me]) + 1);
        STORE(&all->byte[me], (uint8_t)(LOAD(&all->byte[me]) + 1));
        STORE(&all->half[me], (uint16_t)(LOAD(&all->half[me]) + 3));
    }
    comem_barrier();
    for (int t = 0; t < threads; t++) {
        EXPECT(LOAD(&all->counter[t]) == (uint64_t)rounds);
        EXPECT(LOAD(&all->byte[t]) == (uint8_t)rounds);
        EXPECT(LOAD(&all->half[t]) == (uint16_t)(3 * rounds));
    }
}

static void atomics(int threads)
{
    for (long round = 0; round < rounds; round++) {
        ADD(&all->sum, 1);
        ADD(&all->sum32, 2);
        uint64_t seen = LOAD(&all->turns), found;
        while ((found = CAS(&all->turns, seen, seen + 5)) != seen)
            seen = found;
    }
    comem_barrier();
    EXPECT(LOAD(&all->sum) == (uint64_t)(threads * rounds));
    EXPECT(LOAD(&all->sum32) == (uint32_t)(2 * threads * rounds));
    EXPECT(LOAD(&all->turns) == (uint64_t)(5 * threads * rounds));
}

static void locks(int threads)
{
    for (long round = 0; round < rounds; round++) {
        comem_lock(7);
        STORE(&all->under_lock, LOAD(&all->under_lock) + 1);
        comem_unlock(7);
    }
    comem_barrier();
    EXPECT(LOAD(&all->under_lock) == (uint64_t)(threads * rounds));
}

/* Spins on plain variables: each thread waits for its turn, and what was stored before the flag is seen after it. */
static void flags(int me, int threads)
{
    long turns = rounds / 10 + 1;
    for (long turn = 0; turn < turns; turn++) {
        uint32_t mine = (uint32_t)(turn * threads + me);
        while (LOAD(&all->flag) != mine)
            ;
        EXPECT(LOAD(&all->answer) == mine * 3);
        STORE(&all->answer, (mine + 1) * 3);
        STORE(&all->flag, mine + 1);
    }
    comem_barrier();
    EXPECT(LOAD(&all->flag) == (uint32_t)(turns * threads));
}

/* Values that look like those of invalid units: right, if slower. */
static void magic(int me, int threads)
{
    static const uint64_t nasty[] = {0xfffdfffdfffdfffdull, 0xfffdfffd00000001ull, 0x00000001fffdfffdull,
                                     0x7ff8000000000000ull, 0xfff8000000000001ull, 0xffffffffffffffffull};
    size_t many = sizeof nasty / sizeof *nasty, share = CELLS / (size_t)threads;
    for (int pass = 0; pass < 3; pass++) {
        for (size_t at = 0; at < share; at++) {
            size_t cell = (size_t)((me + pass) % threads) * share + at;
            STORE(&all->cell[cell], nasty[(cell + (size_t)pass) % many]);
        }
        comem_barrier();
        for (size_t cell = 0; cell < share * (size_t)threads; cell++)
            EXPECT(LOAD(&all->cell[cell]) == nasty[(cell + (size_t)pass) % many]);
        uint8_t *bytes = (uint8_t *)all->cell;
        for (size_t at = 0; at < 64; at++)
            EXPECT(LOAD(&bytes[at]) == (uint8_t)(nasty[(at / 8 + (size_t)pass) % many] >> (at % 8 * 8)));
        comem_barrier();
    }
}

/* Ranges of any length and alignment, through the functions for them, and strips of stores. */
static void ranges(int me, int threads)
{
    static _Thread_local unsigned char mine[5000], copy[5000];
    unsigned char *bytes = (unsigned char *)all->cell;
    size_t each = sizeof all->cell / (size_t)threads, long_one = each < 4999 ? each : 4999;
    for (size_t length = 1; length < long_one; length = length * 3 + 5) {
        unsigned char *place = bytes + (size_t)me * each + length % 13 % (each - length);
        for (size_t at = 0; at < length; at++)
            mine[at] = (unsigned char)(at * 7 + length + (size_t)me);
        __comem_inline_write(place, mine, length);
        __comem_inline_read(copy, place, length);
        EXPECT(memcmp(mine, copy, length) == 0);
        comem_barrier();
        /* What the next thread has written, and moved within shared memory. */
        size_t next = (size_t)((me + 1) % threads);
        unsigned char *theirs = bytes + next * each + length % 13 % (each - length);
        for (size_t at = 0; at < length; at++)
            mine[at] = (unsigned char)(at * 7 + length + next);
        __comem_inline_memcpy(copy, theirs, length);
        EXPECT(memcmp(mine, copy, length) == 0);
        comem_barrier();
        __comem_inline_memmove(place + 1, place, length - 1);
        __comem_inline_read(copy, place, length);
        for (size_t at = 1; at < length; at++)
            EXPECT(copy[at] == (unsigned char)((at - 1) * 7 + length + (size_t)me));
        __comem_inline_memset(place, 0x5a, length);
        EXPECT(LOAD(place) == 0x5a && LOAD(place + length - 1) == 0x5a);
        comem_barrier();
    }
    /* Strips that meet in a line. */
    for (int pass = 0; pass < 20; pass++) {
        size_t share = 100, first = (size_t)me * share;
        if (checked_strip(&all->cell[first], share * sizeof *all->cell)) {
            for (size_t at = 0; at < share; at++)
                *(volatile uint64_t *)&all->cell[first + at] = (uint64_t)pass * 1000 + at;
            checked_lower();
        } else {
            for (size_t at = 0; at < share; at++)
                STORE(&all->cell[first + at], (uint64_t)pass * 1000 + at);
        }
        comem_barrier();
        for (size_t at = 0; at < share * (size_t)threads && at < CELLS; at++)
            EXPECT(LOAD(&all->cell[at]) == (uint64_t)pass * 1000 + at % share);
        comem_barrier();
    }
}

/* Blocks of all sizes, freed by another node and allocated again: zero whenever they are handed out. */
static void blocks(int me, int threads)
{
    static const size_t sizes[] = {8, 40, 200, 1500, 5000, 300000};
    for (int pass = 0; pass < 6; pass++) {
        for (size_t kind = 0; kind < sizeof sizes / sizeof *sizes; kind++) {
            size_t words = sizes[kind] / 8;
            uint64_t *block = comem_alloc(sizes[kind]);
            for (size_t at = 0; at < words; at += words / 16 + 1)
                EXPECT(LOAD(&block[at]) == 0);
            for (size_t at = 0; at < words; at += words / 16 + 1)
                STORE(&block[at], (uint64_t)me << 32 | at);
            STORE(&all->cell[me], (uint64_t)(uintptr_t)block);
            comem_barrier();
            int next = (me + 1) % threads;
            uint64_t *theirs = (uint64_t *)(uintptr_t)LOAD(&all->cell[next]);
            for (size_t at = 0; at < words; at += words / 16 + 1)
                EXPECT(LOAD(&theirs[at]) == ((uint64_t)next << 32 | at));
            comem_barrier();
            comem_free(theirs);
            comem_barrier();
        }
    }
}

/* Comem's own functions get buffers and places for results there, in lines that another node has used last. */
static void buffers(int me, int threads)
{
    int next = (me + 1) % threads, before = (me + threads - 1) % threads, from = -1;
    uint64_t *mine = &all->cell[32 * me], *theirs = &all->cell[32 * next];
    STORE(&mine[0], (uint64_t)me + 1);
    comem_barrier();
    EXPECT(comem_reduce_i64(COMEM_SUM, (int64_t *)&theirs[0], 1) == 0);
    comem_barrier();
    EXPECT(LOAD(&mine[0]) == (uint64_t)(threads * (threads + 1) / 2) && LOAD(&theirs[0]) == LOAD(&mine[0]));
    comem_barrier();
    STORE(&mine[8], 100 + (uint64_t)me);
    comem_barrier();
    EXPECT(comem_post(next, &theirs[8], 8) == 0);
    EXPECT(comem_receive(&from, &theirs[16], 8) == 8 && from == before * comem_nodes() / threads);
    EXPECT(LOAD(&theirs[16]) == 100 + (uint64_t)me);
    comem_barrier();
    EXPECT(LOAD(&mine[16]) == 100 + (uint64_t)before);
    comem_barrier();
    EXPECT(comem_write(object.any, (uint64_t)next, &theirs[16]) == 0);
    comem_barrier();
    EXPECT(comem_read(object.any, (uint64_t)me, &theirs[24]) == 0);
    EXPECT(LOAD(&theirs[24]) == 100 + (uint64_t)before);
    uint64_t low, high;
    EXPECT(comem_split(1000, &low, &high) == 0 && comem_split(1000, &theirs[25], &theirs[26]) == 0);
    EXPECT(LOAD(&theirs[25]) == low && LOAD(&theirs[26]) == high);
    comem_barrier();
    EXPECT(LOAD(&mine[24]) == 100 + (uint64_t)((before + threads - 1) % threads));
}

static void store_bytes(void *to, const void *from, size_t bytes)
{
    const char *next = from;
    for (size_t at = 0; at < bytes; at++)
        STORE((char *)to + at, next[at]);
}

/* So do strings, and options, which another node has made. */
static void strings(int me, int threads)
{
    int next = (me + 1) % threads;
    char name[NAME];
    snprintf(name, sizeof name, "a name that thread %d made, as long as a label in a report can be", me);
    store_bytes(all->name[me], name, sizeof name);
    comem_region_options options = {.label = all->name[me]};
    store_bytes(&all->options[me], &options, sizeof options);
    if (me == 0) {
        comem_object_options array = {.label = all->name[0], .engine = all->name[0]};
        store_bytes(&all->array, &array, sizeof array);
    }
    comem_barrier();
    EXPECT(comem_alloc_with(200000, &all->options[next]) != NULL);
    comem_barrier();
    store_bytes(all->name[me], "b", 1);
    comem_barrier();
    EXPECT(comem_label(comem_alloc(200000), all->name[next]) == 0);
    comem_barrier();
}

/* The first thread of each node: an array whose options name no engine. */
static void refused_array(void)
{
    comem_array array;
    EXPECT(comem_create(&array, 8, 10, &all->array) < 0);
    EXPECT(strstr(comem_last_error(), "unknown engine \"b name that thread 0 made") != NULL);
}

static void part(void *argument)
{
    (void)argument;
    int me = comem_thread(), threads = comem_threads();
    void (*const tests[])(int, int) = {false_sharing, flags, magic, ranges, blocks, buffers, strings};
    for (size_t at = 0; at < sizeof tests / sizeof *tests; at++) {
        tests[at](me, threads);
        comem_barrier();
    }
    atomics(threads);
    comem_barrier();
    locks(threads);
    comem_barrier();
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atol(argv[1]) : 100;
    /* Checked accesses of before the start go to private memory. */
    uint64_t *own = malloc(sizeof *own);
    STORE(own, 0xfffdfffdfffdfffdull);
    EXPECT(LOAD(own) == 0xfffdfffdfffdfffdull && ADD(own, 3) == 0xfffdfffdfffdfffdull);
    if (comem_start() != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    if (comem_threads() > MOST)
        return 1;
    all = comem_alloc_all(sizeof *all, NULL);
    object = comem_new_u64((uint64_t)comem_threads(), NULL);
    comem_parallel(part, NULL);
    refused_array();
    free(own);
    if (comem_node() == 0 && !wrong)
        puts("ok");
    comem_finish();
    return wrong;
}
