/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * ep: pairs of Gaussian deviates, tabulated (NAS's "embarrassingly parallel" program; Nautilus, section 7).
 *
 * A linear congruential generator gives pairs of numbers in the unit square. Those within the circle become a pair of
 * Gaussian deviates by the polar method; ten counters say how many pairs fall into each square ring around the origin.
 * Every thread has its own stretch of the one sequence. The only communication is at the end: adding ten counts, and
 * two sums, in a critical section.
 *
 * The counts are the same for any number of threads; the sums are, but for rounding.
 */
#include "kernel.h"

enum { RINGS = 10, BATCH_BITS = 12 };

static const uint64_t MULTIPLIER = UINT64_C(1220703125) /* 5^13 */, SEED = 271828183;
static const uint64_t MASK = (UINT64_C(1) << 46) - 1;

static int64_t log_pairs = 20;

typedef struct table {
    int64_t counts[RINGS];
    double sum_x, sum_y;
} table;

static table *shared;

/* ---- the sequence ---------------------------------------------------------------------------------------------- */

/* MULTIPLIER to the power of `exponent`, modulo 2^46. */
static uint64_t power(uint64_t exponent) {
    uint64_t result = 1, factor = MULTIPLIER;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = result * factor & MASK;
        factor = factor * factor & MASK;
    }
    return result;
}

/* The next number in (0, 1). */
static inline double next(uint64_t *state) {
    *state = *state * MULTIPLIER & MASK;
    return (double)*state * 0x1p-46;
}

static void tabulate_pair(table *t, double x, double y) {
    const double square = x * x + y * y;
    if (square > 1.0) return;
    const double factor = sqrt(-2.0 * log(square) / square);
    x *= factor;
    y *= factor;
    const double larger = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
    t->counts[(int)larger]++;
    t->sum_x += x;
    t->sum_y += y;
}

/* Tabulates pairs [low, high) of the sequence. */
KERNEL_HOT static void tabulate(table *t, uint64_t low, uint64_t high) {
    uint64_t state = SEED * power(2 * low) & MASK;
    for (uint64_t i = low; i < high; i++) {
        const double x = 2.0 * next(&state) - 1.0;
        const double y = 2.0 * next(&state) - 1.0;
        tabulate_pair(t, x, y);
    }
}

static void work(void *unused) {
    (void)unused;
    table mine;
    int64_t low, high;
    memset(&mine, 0, sizeof mine);
    comem_barrier();
    double start = now();
    kernel_part((int64_t)1 << (log_pairs - BATCH_BITS), comem_threads(), comem_thread(), &low, &high);
    tabulate(&mine, (uint64_t)low << BATCH_BITS, (uint64_t)high << BATCH_BITS);
    comem_lock(1);
    for (int i = 0; i < RINGS; i++) shared->counts[i] += mine.counts[i];
    shared->sum_x += mine.sum_x;
    shared->sum_y += mine.sum_y;
    comem_unlock(1);
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Sums for some sizes, as the NAS Parallel Benchmarks publish them. */
static const struct {
    int64_t log_pairs;
    double sum_x, sum_y;
} published[] = {
    {24, -3.247834652034740e3, -6.958407078382297e3},
    {25, -2.863319731645753e3, -6.320053679109499e3},
    {28, -4.295875165629892e3, -1.580732573678431e4},
};

static int close_to(double value, double expected) {
    return fabs(value - expected) <= 1e-8 * fabs(expected) + 1e-9;
}

/* Whether every pair in the circle was counted once: that is pi/4 of all, and what is published where something is. */
static int is_plausible(void) {
    const double pairs = (double)((int64_t)1 << log_pairs), share = acos(-1.0) / 4;
    double counted = 0;
    for (int i = 0; i < RINGS; i++) counted += (double)shared->counts[i];
    if (fabs(counted - share * pairs) > 5 * sqrt(pairs * share * (1 - share))) return 0;
    for (size_t i = 0; i < COUNT_OF(published); i++) {
        if (published[i].log_pairs == log_pairs &&
            !(close_to(shared->sum_x, published[i].sum_x) && close_to(shared->sum_y, published[i].sum_y))) {
            return 0;
        }
    }
    return 1;
}

/* The next number of the sequence by another method: in floating point, from halves of 23 bits, as machines without
 * long integers do it. */
static double next_by_halves(double *state) {
    const double a_high = floor((double)MULTIPLIER * 0x1p-23), a_low = (double)MULTIPLIER - 0x1p23 * a_high;
    const double x_high = floor(*state * 0x1p-23), x_low = *state - 0x1p23 * x_high;
    double middle = a_high * x_low + a_low * x_high;
    middle -= 0x1p23 * floor(middle * 0x1p-23);
    const double product = 0x1p23 * middle + a_low * x_low;
    *state = product - 0x1p46 * floor(product * 0x1p-46);
    return *state * 0x1p-46;
}

/* Whether the whole sequence in one go, by that method, gives the same counts, and the same sums but for rounding. */
static int agrees(void) {
    table t;
    double state = (double)SEED;
    memset(&t, 0, sizeof t);
    for (int64_t i = 0; i < (int64_t)1 << log_pairs; i++) {
        const double x = 2.0 * next_by_halves(&state) - 1.0;
        const double y = 2.0 * next_by_halves(&state) - 1.0;
        tabulate_pair(&t, x, y);
    }
    return memcmp(t.counts, shared->counts, sizeof t.counts) == 0 && close_to(shared->sum_x, t.sum_x) &&
           close_to(shared->sum_y, t.sum_y);
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--log-pairs", &log_pairs, NULL, NULL, "the logarithm, base two, of how many pairs"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {17}},
        {"nautilus", "Nautilus, section 8", {24}},
        {"jiajia", "as Nautilus", {24}},
        {"large", "four times Nautilus", {26}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (log_pairs < BATCH_BITS || log_pairs > 40) refuse("ep", "--log-pairs is 12 to 40");
    comem_region_options options;
    memset(&options, 0, sizeof options);
    options.label = "table";
    options.alignment = KERNEL_PAGE;
    shared = comem_alloc_all(sizeof *shared, &options);
    if (!shared) refuse("ep", "no shared memory");
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int right = is_plausible() && (!kernel_check || agrees());
    uint64_t sum = 0;
    for (int i = 0; i < RINGS; i++) sum = mix(sum ^ (uint64_t)shared->counts[i]);
    printf("ep log_pairs=%" PRId64 " sum_x=%.6f sum_y=%.6f", log_pairs, shared->sum_x, shared->sum_y);
    return kernel_finish(sum, right);
}
