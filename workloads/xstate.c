/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * xstate: finds all zeros of an integer expression of three variables by trying every state (DSM/IP, section 4.2).
 *
 * Almost all of it is computation in local variables. A thread that finds a zero appends it to a shared array under
 * the one lock; one barrier ends the search. With --weighted the search goes in rounds, and each round is dealt out
 * by the speed that the threads showed in the one before: machines of unequal speed then finish together.
 */
#include "common.h"

enum { VARIABLES = 3, SOLUTIONS_LOCK = 1, ROUNDS = 12 };

static int64_t radius = 150, which, capacity = 65536;
static int check, weighted, list;

/* Solution k stands at elements 3k to 3k+2. */
static comem_array_i32 solutions;
static comem_array_i64 found; /* one element: how many there are, also beyond the capacity */
static double seconds;

/* ---- the expressions ------------------------------------------------------------------------------------------ */

typedef struct expression {
    const char *text;
    int64_t (*value)(int64_t x, int64_t y, int64_t z);
} expression;

static int64_t pythagoras(int64_t x, int64_t y, int64_t z) {
    return x * x + y * y - z * z;
}
static int64_t cubes(int64_t x, int64_t y, int64_t z) {
    return x * x * x + y * y * y + z * z * z - 855;
}
static int64_t markov(int64_t x, int64_t y, int64_t z) {
    return x * x + y * y + z * z - 3 * x * y * z;
}
static int64_t mixed(int64_t x, int64_t y, int64_t z) {
    return x * x * x - 7 * x * y + 11 * y * z - z * z + (x ^ z) % 13 - 42;
}

static const expression expressions[] = {
    {"x^2 + y^2 - z^2", pythagoras},
    {"x^3 + y^3 + z^3 - 855", cubes},
    {"x^2 + y^2 + z^2 - 3xyz", markov},
    {"x^3 - 7xy + 11yz - z^2 + (x xor z) mod 13 - 42", mixed},
};

/* ---- the search ----------------------------------------------------------------------------------------------- */

/* Values of one variable, from -radius to radius. */
static uint64_t values(void) {
    return 2 * (uint64_t)radius + 1;
}

/* Calls `hit` for each zero whose x and y are pair number [low, high). */
static void search(uint64_t low, uint64_t high, void (*hit)(const int32_t *state, void *to), void *to) {
    int64_t (*const value)(int64_t, int64_t, int64_t) = expressions[which].value;
    for (uint64_t pair = low; pair < high; pair++) {
        const int64_t x = (int64_t)(pair / values()) - radius, y = (int64_t)(pair % values()) - radius;
        for (int64_t z = -radius; z <= radius; z++) {
            if (value(x, y, z) != 0) continue;
            const int32_t state[VARIABLES] = {(int32_t)x, (int32_t)y, (int32_t)z};
            hit(state, to);
        }
    }
}

/* Appends a solution to the shared array, or only counts it when the array is full. */
static void share(const int32_t *state, void *unused) {
    (void)unused;
    comem_lock(SOLUTIONS_LOCK);
    int64_t place = comem_read_i64(found, 0);
    if (place < capacity) {
        for (int i = 0; i < VARIABLES; i++) {
            comem_write_i32(solutions, (uint64_t)(place * VARIABLES + i), state[i]);
        }
    }
    comem_write_i64(found, 0, place + 1);
    comem_unlock(SOLUTIONS_LOCK);
}

static void work(void *unused) {
    (void)unused;
    const uint64_t pairs = values() * values();
    const uint64_t rounds = weighted ? ROUNDS : 1;
    uint64_t low, high;
    comem_barrier();
    double start = now();
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t first = pairs * round / rounds, last = pairs * (round + 1) / rounds;
        if (weighted) {
            comem_split_weighted(last - first, &low, &high);
        } else {
            comem_split(last - first, &low, &high);
        }
        search(first + low, first + high, share, NULL);
    }
    comem_barrier();
    if (comem_thread() == 0) seconds = now() - start;
}

/* ---- the result ----------------------------------------------------------------------------------------------- */

/* How many solutions, and a sum over them that does not depend on their order. */
typedef struct tally {
    int64_t count;
    uint64_t checksum;
} tally;

static void add(const int32_t *state, void *to) {
    tally *t = to;
    uint64_t sum = 0;
    for (int i = 0; i < VARIABLES; i++) sum = mix(sum ^ (uint64_t)(uint32_t)state[i]);
    t->count++;
    t->checksum += sum;
}

/* Adds up the shared array; a solution that is none counts as wrong. */
static tally add_found(uint64_t *wrong) {
    tally all = {0, 0};
    int64_t count = comem_read_i64(found, 0), kept = count < capacity ? count : capacity;
    for (int64_t k = 0; k < kept; k++) {
        int32_t state[VARIABLES];
        for (int i = 0; i < VARIABLES; i++) state[i] = comem_read_i32(solutions, (uint64_t)(k * VARIABLES + i));
        *wrong += expressions[which].value(state[0], state[1], state[2]) != 0;
        add(state, &all);
        if (list) printf("  %d %d %d\n", state[0], state[1], state[2]);
    }
    all.count = count;
    return all;
}

static int report(void) {
    uint64_t wrong = 0;
    tally all = add_found(&wrong);
    printf("xstate: %s within %" PRId64 " solutions=%" PRId64 " checksum=%016" PRIx64, expressions[which].text, radius,
           all.count, all.checksum);
    if (check) {
        tally expected = {0, 0};
        search(0, values() * values(), add, &expected);
        wrong += all.count != expected.count || (all.count <= capacity && all.checksum != expected.checksum);
        printf(" expected_solutions=%" PRId64 " expected_checksum=%016" PRIx64, expected.count, expected.checksum);
    }
    printf(" threads=%d time_s=%.6f %s\n", comem_threads(), seconds, wrong ? "WRONG" : "ok");
    return wrong != 0;
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--radius", &radius, NULL, NULL, "each variable goes from -radius to radius"},
        {"--expression", &which, NULL, NULL, "which expression, 0 to 3"},
        {"--solutions", &capacity, NULL, NULL, "solutions to keep; more are only counted"},
        {"--weighted", NULL, NULL, &weighted, "search in rounds, dealt out by the measured speed of the threads"},
        {"--list", NULL, NULL, &list, "print the solutions"},
        {"--check", NULL, NULL, &check, "compare with a sequential run"},
    };
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    if (which >= (int64_t)COUNT_OF(expressions)) refuse("xstate", "the expressions are 0 to 3");
    if (radius > 100000) refuse("xstate", "the radius is at most 100000");
    if (capacity < 1 || capacity > (1 << 26)) refuse("xstate", "keep 1 to 2^26 solutions");
    comem_object_options names = {0};
    names.label = "solutions";
    solutions = comem_new_i32((uint64_t)capacity * VARIABLES, &names);
    names.label = "found";
    found = comem_new_i64(1, &names);
    comem_parallel(work, NULL);
    int failed = comem_node() == 0 ? report() : 0;
    return comem_finish() != 0 || failed;
}
