/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * genetic: breeds a specific integer from a random population (DSM/IP, section 4.2).
 *
 * Each generation has two phases with a barrier after each. In the first, every thread judges its part of the
 * population and writes the fitness of each member; judging takes some thinking that touches no shared memory. In the
 * second, the members below average are replaced by children of fit parents from anywhere in the population, so
 * readers and writers change roles. Every random number is a function of seed, generation and place, so the outcome
 * is the same for any number of threads.
 */
#include "common.h"

enum { BITS = 64, SCALE = 1000 };

static int64_t population = 1024, generations = 200, think = 200, seed = 1;
static int64_t target = INT64_C(0x5ea5ea5c0ffee123);
static int check;

/* The members, the next generation's, and how fit they are: shared, or plain for the check. */
typedef struct world {
    comem_array_u64 members[2];
    comem_array_i64 fitness;
    uint64_t *plain_members[2];
    int64_t *plain_fitness;
} world;

/* What came of it. */
typedef struct outcome {
    int64_t generation; /* the first with the target in it, or the last */
    int64_t best;       /* fitness */
    uint64_t checksum;  /* of the last population */
} outcome;

static world shared;
static outcome result;
static double seconds;

/* ---- where the population lives: `plain` is a constant wherever these are called, so the choice costs nothing - */

static inline uint64_t member(const world *w, int plain, int side, uint64_t place) {
    return plain ? w->plain_members[side][place] : comem_read_u64(w->members[side], place);
}
static inline void set_member(const world *w, int plain, int side, uint64_t place, uint64_t value) {
    if (plain) {
        w->plain_members[side][place] = value;
    } else {
        comem_write_u64(w->members[side], place, value);
    }
}
static inline int64_t fitness(const world *w, int plain, uint64_t place) {
    return plain ? w->plain_fitness[place] : comem_read_i64(w->fitness, place);
}
static inline void set_fitness(const world *w, int plain, uint64_t place, int64_t value) {
    if (plain) {
        w->plain_fitness[place] = value;
    } else {
        comem_write_i64(w->fitness, place, value);
    }
}

/* ---- a generation --------------------------------------------------------------------------------------------- */

/* A random number for one place in one generation; `use` tells several of them apart. */
static uint64_t chance(int64_t generation, uint64_t place, uint64_t use) {
    return mix(mix(mix((uint64_t)seed + use) ^ (uint64_t)generation) ^ place);
}

/* How fit a member is: the bits it has in common with the target, thought over `think` times. The thoughts end in a
 * number below SCALE that tells members with equally many bits apart, the same one for the same member. */
static int64_t judge(uint64_t value) {
    uint64_t thought = value;
    for (int64_t i = 0; i < think; i++) thought = mix(thought);
    uint64_t differing = value ^ (uint64_t)target;
    int64_t bits = BITS;
    for (; differing; differing &= differing - 1) bits--;
    return bits == BITS ? BITS * SCALE : bits * SCALE + (int64_t)(thought % SCALE);
}

/* The fittest of three members drawn at random. */
static inline uint64_t parent(const world *w, int plain, int side, int64_t generation, uint64_t place, uint64_t use) {
    uint64_t best = 0;
    int64_t best_fitness = -1;
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t candidate = chance(generation, place, use + i) % (uint64_t)population;
        int64_t candidate_fitness = fitness(w, plain, candidate);
        if (candidate_fitness > best_fitness) {
            best = candidate;
            best_fitness = candidate_fitness;
        }
    }
    return member(w, plain, side, best);
}

/* A child: each bit from one of two parents, one bit in a hundred and twenty-eight turned over. */
static inline uint64_t child(const world *w, int plain, int side, int64_t generation, uint64_t place) {
    uint64_t one = parent(w, plain, side, generation, place, 1), other = parent(w, plain, side, generation, place, 4);
    uint64_t from_one = chance(generation, place, 7);
    uint64_t mutated = UINT64_MAX;
    for (uint64_t i = 8; i < 15; i++) mutated &= chance(generation, place, i);
    return ((one & from_one) | (other & ~from_one)) ^ mutated;
}

/* Phase one, for places [low, high): judges the members. Gives the sum and the greatest of their fitness. */
static inline void judge_all(const world *w, int plain, int side, uint64_t low, uint64_t high, int64_t *sum,
                             int64_t *best) {
    *sum = 0;
    *best = -1;
    for (uint64_t place = low; place < high; place++) {
        int64_t fit = judge(member(w, plain, side, place));
        set_fitness(w, plain, place, fit);
        *sum += fit;
        if (fit > *best) *best = fit;
    }
}

/* Phase two, for places [low, high): members below average give way to children, the others live on. */
static inline void replace_all(const world *w, int plain, int side, int64_t generation, int64_t sum, uint64_t low,
                               uint64_t high) {
    for (uint64_t place = low; place < high; place++) {
        int weak = fitness(w, plain, place) * population < sum;
        uint64_t next = weak ? child(w, plain, side, generation, place) : member(w, plain, side, place);
        set_member(w, plain, !side, place, next);
    }
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

static inline outcome breed(const world *w, int plain, uint64_t low, uint64_t high) {
    outcome out = {0, -1, 0};
    int side = 0;
    for (uint64_t place = low; place < high; place++) set_member(w, plain, side, place, chance(-1, place, 0));
    for (out.generation = 0;; out.generation++) {
        int64_t sum, best;
        judge_all(w, plain, side, low, high, &sum, &best);
        if (!plain) {
            comem_reduce_i64(COMEM_SUM, &sum, 1);
            comem_reduce_i64(COMEM_MAX, &best, 1);
        }
        out.best = best;
        if (best == BITS * SCALE || out.generation == generations) break;
        replace_all(w, plain, side, out.generation, sum, low, high);
        if (!plain) comem_barrier();
        side = !side;
    }
    for (uint64_t place = low; place < high; place++) {
        out.checksum += mix(member(w, plain, side, place) + mix(place));
    }
    return out;
}

static void work(void *unused) {
    (void)unused;
    uint64_t low, high;
    comem_split((uint64_t)population, &low, &high);
    comem_barrier();
    double start = now();
    outcome mine = breed(&shared, 0, low, high);
    int64_t checksum = (int64_t)mine.checksum;
    comem_reduce_i64(COMEM_SUM, &checksum, 1);
    if (comem_thread() == 0) {
        seconds = now() - start;
        result = mine;
        result.checksum = (uint64_t)checksum;
    }
}

static outcome breed_plainly(void) {
    world w = {0};
    size_t count = (size_t)population;
    w.plain_members[0] = calloc(count, sizeof(uint64_t));
    w.plain_members[1] = calloc(count, sizeof(uint64_t));
    w.plain_fitness = calloc(count, sizeof(int64_t));
    if (!w.plain_members[0] || !w.plain_members[1] || !w.plain_fitness) refuse("genetic", "no memory for the check");
    outcome out = breed(&w, 1, 0, (uint64_t)population);
    free(w.plain_members[0]);
    free(w.plain_members[1]);
    free(w.plain_fitness);
    return out;
}

static int report(void) {
    printf("genetic: population %" PRId64 " generations=%" PRId64 " best=%" PRId64 " found=%s checksum=%016" PRIx64,
           population, result.generation, result.best, result.best == BITS * SCALE ? "yes" : "no", result.checksum);
    int wrong = 0;
    if (check) {
        outcome expected = breed_plainly();
        wrong = expected.generation != result.generation || expected.best != result.best ||
                expected.checksum != result.checksum;
        printf(" expected_generations=%" PRId64 " expected_checksum=%016" PRIx64, expected.generation,
               expected.checksum);
    }
    printf(" threads=%d time_s=%.6f %s\n", comem_threads(), seconds, wrong ? "WRONG" : "ok");
    return wrong;
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--population", &population, NULL, NULL, "members"},
        {"--generations", &generations, NULL, NULL, "most generations"},
        {"--think", &think, NULL, NULL, "steps of thinking about each member"},
        {"--target", &target, NULL, NULL, "the integer to breed"},
        {"--seed", &seed, NULL, NULL, "of all random numbers"},
        {"--check", NULL, NULL, &check, "compare with a sequential run"},
    };
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    if (population < 1 || population > (1 << 28)) refuse("genetic", "a population has 1 to 2^28 members");
    comem_object_options names = {0};
    names.label = "members 0";
    shared.members[0] = comem_new_u64((uint64_t)population, &names);
    names.label = "members 1";
    shared.members[1] = comem_new_u64((uint64_t)population, &names);
    names.label = "fitness";
    shared.fitness = comem_new_i64((uint64_t)population, &names);
    comem_parallel(work, NULL);
    int failed = comem_node() == 0 ? report() : 0;
    return comem_finish() != 0 || failed;
}
