/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * random.h: what the parts of the random program share.
 *
 * A seed makes regions of shared memory and a row of phases. In each phase most regions are used in the way of their
 * kind: by owners between barriers, under locks, through queues, behind flags and so on. Whatever is drawn is drawn
 * alike by every thread of every node, so each thread knows what all the others write, and in which order: it keeps a
 * copy of each region in private memory, its *model*, and compares what it reads with that.
 *
 * No access races by docs/memory-model.md: two that conflict are ordered by a barrier of all threads, or by what the
 * kind of their region uses, and regions under `scope` are of those kinds alone that keep to what `scope` asks.
 */
#ifndef RANDOM_H
#define RANDOM_H

#define _GNU_SOURCE

#include "common.h"

#include <limits.h>
#include <pthread.h>
#include <unistd.h>

enum { REGIONS_MAX = 10, ARRAYS_MAX = 4, THREADS_MAX = 24, LOCKS_MAX = 8 };
enum { BLOCKS = 8, PAGE = 4096, WORD = 8, NEVER = INT_MAX };

enum engine { HLRC, SCOPE, MSI, LRC, MULTICAST, ENGINES };

/* How a region is used. Regions under `scope` are of the kinds up to QUEUE; ATOMICS need `msi`. */
enum kind { OWNERS, LOCKS, READERS, QUEUE, SEMAPHORES, BROADCAST, RING, PIPES, MEETINGS, SIGNS, ATOMICS, KINDS };

/* The status of a node that found something wrong. */
enum { ENDED_WRONG = 4 };

/* What a program may be told to leave out: bits of --features. */
enum {
    BLOCKS_IN_BETWEEN = 1 << 0,
    TOUCHES = 1 << 1,
    SYSTEM_CALLS = 1 << 2,
    REDUCTIONS = 1 << 3,
    PAUSES = 1 << 4,
    READONLY = 1 << 5,
    FREEING = 1 << 6,
    LATE_REGIONS = 1 << 7,
    TYPED_ARRAYS = 1 << 8
};

/* A region of shared memory. Phases are counted from 0. */
typedef struct region {
    enum kind kind;
    enum engine engine;
    int number;
    uint64_t size;
    comem_region_options options;
    char label[16];
    int birth, death, readonly; /* the phases that begin with its allocation, its end, its last write's being past */
    int window, percent;        /* in so many of a hundred stretches of `window` phases it is used */
    uint64_t locks, words, spacing; /* records (records.c): how many, of how many words, which lie how far apart */
    unsigned char *data;
} region;

/* A block that one thread allocates in mid-run and any may free (blocks.c). */
typedef struct block {
    int alive;
    uint64_t size;
    unsigned char *model;
} block;

/* A thread, and what it knows of shared memory. */
typedef struct thread {
    int number, phase;
    unsigned char *model[REGIONS_MAX];
    uint64_t steps[REGIONS_MAX][LOCKS_MAX]; /* of each record */
    uint64_t passed[REGIONS_MAX];           /* items of a queue, values of a flag */
    int begun[REGIONS_MAX];                 /* the region's semaphores have their first posts */
    block blocks[BLOCKS];
    unsigned char *arrays[ARRAYS_MAX]; /* models of typed arrays (arrays.c) */
    uint64_t turns[ARRAYS_MAX];        /* of a relay */
    int file; /* for system calls */
} thread;

/* A stretch of a region. */
typedef struct span {
    uint64_t offset, length;
} span;

extern region regions[REGIONS_MAX];
extern int region_count;
extern int64_t seed, phases;
extern enum engine job_engine;
extern int mixed; /* regions may name engines */

int has(int feature);
/* Whether a region is among those to be used at all (--regions, --kinds). */
int wanted(const region *r);
extern const char *const kind_names[KINDS];
int nodes(void);
int threads(void);

/* ---- chance --------------------------------------------------------------------------------------------------- */

/* Numbers that follow from the seed, what they are for, and two numbers more: the same for whoever asks. */
typedef struct dice {
    uint64_t key;
} dice;

static inline uint64_t blend(uint64_t a, uint64_t b) {
    return mix(mix(a) ^ b);
}
static inline dice dice_for(const char *what, int phase, int which) {
    uint64_t key = (uint64_t)seed;
    for (; *what; what++) key = blend(key, (uint64_t)*what);
    return (dice){blend(blend(key, (uint64_t)phase), (uint64_t)which)};
}
static inline uint64_t draw(dice *d) {
    return mix(d->key++);
}
/* A number below `bound`. */
static inline uint64_t roll(dice *d, uint64_t bound) {
    return draw(d) % bound;
}
static inline int roll_int(dice *d, int bound) {
    return (int)roll(d, (uint64_t)bound);
}
/* True once in so many times. */
static inline int one_in(dice *d, uint64_t times) {
    return roll(d, times) == 0;
}

/* ---- memory and model (model.c) --------------------------------------------------------------------------------- */

extern int wrong; /* what this node has found */

/* The address of a place in a region, and in this thread's model of it. */
static inline unsigned char *at(const region *r, uint64_t offset) {
    return r->data + offset;
}
static inline unsigned char *model_at(const thread *self, const region *r, uint64_t offset) {
    return self->model[r->number] + offset;
}
static inline volatile uint64_t *word_at(const region *r, uint64_t offset) {
    return (volatile uint64_t *)(void *)at(r, offset);
}
/* Sets a word of the model. */
static inline void expect(const thread *self, const region *r, uint64_t offset, uint64_t value) {
    memcpy(model_at(self, r, offset), &value, sizeof value);
}

/* Says that something is not as it must be; `r` may be NULL. */
void report(const thread *self, const char *what, const region *r, uint64_t offset, const void *address, uint64_t found,
            uint64_t due);
/* Compares memory with what it must be. */
void check_memory(const thread *self, const char *what, const region *r, const unsigned char *memory,
                  const unsigned char *due, span s);
/* Compares part of a region with the model: by loads, or through a system call that reads it. */
void check(const thread *self, const char *what, const region *r, span s);
void check_all(const thread *self, const char *what, const region *r);
void check_by_call(const thread *self, const region *r, span s);

/* Ways to fill: new bytes, old bytes counted up, the same bytes, zeros, some bytes counted up. */
enum filling { FRESH, COUNTED, SAME, ZEROS, SOME, FILLINGS };
/* What stands in a stretch after a write of that kind, where `old` stood. */
void fill(unsigned char *out, const unsigned char *old, span s, uint64_t key, enum filling way);
/* Stores bytes by instructions of several sizes, upwards or down. */
void store(unsigned char *to, const unsigned char *from, uint64_t length, uint64_t way);
/* Stores bytes by a system call. */
void store_by_call(const thread *self, const region *r, uint64_t offset, const unsigned char *from, uint64_t length);
/* Changes some bytes of a stretch: who writes stores them, and everybody's model has them. */
void change(const thread *self, const region *r, span s, uint64_t key, int writes);
/* Mostly returns at once; else sleeps, or computes, for a moment. */
void pause_maybe(uint64_t key);

/* ---- what regions are used for ---------------------------------------------------------------------------------- */

/* The name of a region's lock, flag, semaphore or whatever else has that index. */
uint64_t name_of(const region *r, int index);

void choose_regions(void);
/* Under `lrc` and `multicast` the diffs of a unit must fit a message. */
void fit_unit(comem_region_options *o, enum engine engine);
/* Allocates what there is from the beginning; the caller is a node's first thread. */
void allocate_first(void);
/* What begins and ends with a phase. */
void change_lives(const thread *self, pthread_barrier_t *of_node);
/* Whether the region exists in a phase, and whether it may be written. */
int lives(const region *r, int phase);
int may_write(const region *r, int phase);
void show_regions(void);

void read_region(const thread *self, const region *r);
void write_by_owners(const thread *self, const region *r);
void choose_record(region *r, dice *d);
void use_records(thread *self, const region *r);
void use_queue(thread *self, const region *r);
void use_broadcast(thread *self, const region *r);
void use_ring(thread *self, const region *r);
void use_pipes(thread *self, const region *r);
void use_meetings(thread *self, const region *r);
void use_signs(thread *self, const region *r);
void use_atomics(thread *self, const region *r);

void allocate_blocks(void);
void use_blocks(thread *self);
void check_blocks(const thread *self);

/* Creates the typed arrays that a part of the program begins with, for the node's threads; outside of them. */
void create_arrays(int part, thread *all, int count);
void use_arrays(thread *self, int part);
void check_arrays(const thread *self);

/* The barrier, or what else is one, that ends a phase. */
void end_phase(const thread *self);

#endif /* RANDOM_H */
