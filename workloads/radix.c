/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * radix: integers sorted digit by digit (SPLASH-2's RADIX; HLRC on UDP, section 4.2).
 *
 * For each digit, from the lowest: every thread counts how often each value of the digit occurs among its keys; the
 * threads share the work of turning these counts into places (who has the first key of this value, and where does it
 * go?); and every thread moves its keys, in order, to their places in the other array. The moves scatter single words
 * over all threads' pages: false sharing is what this program is about.
 *
 * Each pass keeps the order of equal digits, so the arrays are the same for any number of threads.
 */
#include "kernel.h"

enum { SEED = 3, KEY_BYTES = sizeof(uint32_t), PAGE_KEYS = KERNEL_PAGE / KEY_BYTES };

static int64_t key_count = 1 << 18, radix = 1024, max_key = 1 << 20;

static int digit_bits;     /* the logarithm of the radix */
static uint32_t *keys[2];  /* the arrays that keys move between */
static int64_t **counts;   /* of each thread: its keys with each value of the digit */
static int64_t **starts;   /* of each thread: for its values and each thread, the first place among its values */
static int64_t **totals;   /* of each thread: the keys with its values */

/* The value of a key's digit; `mask` is the radix less one. */
static inline int64_t digit(uint32_t key, int shift, uint32_t mask) {
    return (key >> shift) & mask;
}

static uint32_t first_key(int64_t i) {
    return (uint32_t)(mix(SEED + (uint64_t)i) % (uint64_t)max_key);
}

/* The keys [*low, *high) that a thread moves: whole pages, so that two threads' pages are not one. */
static void keys_of(int thread, int64_t *low, int64_t *high) {
    kernel_part((key_count + PAGE_KEYS - 1) / PAGE_KEYS, comem_threads(), thread, low, high);
    *low *= PAGE_KEYS;
    *high *= PAGE_KEYS;
    if (*low > key_count) *low = key_count;
    if (*high > key_count) *high = key_count;
}

/* The values [*low, *high) of the digit whose counts a thread turns into places. */
static void values_of(int thread, int64_t *low, int64_t *high) {
    kernel_part(radix, comem_threads(), thread, low, high);
}

/* ---- a pass ---------------------------------------------------------------------------------------------------- */

/* Counts the digits of keys. */
KERNEL_HOT static void count_digits(const uint32_t *from, int64_t key_total, int shift, uint32_t mask, int64_t *mine) {
    memset(mine, 0, ((size_t)mask + 1) * sizeof *mine);
    for (int64_t i = 0; i < key_total; i++) mine[digit(from[i], shift, mask)]++;
}

static void count(const uint32_t *from, int shift) {
    int64_t low, high;
    keys_of(comem_thread(), &low, &high);
    count_digits(from + low, high - low, shift, (uint32_t)radix - 1, counts[comem_thread()]);
}

/* Adds up this thread's values, over all threads: by value first, by thread second. */
static void add_up(void) {
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high, sum = 0;
    values_of(self, &low, &high);
    for (int64_t value = low; value < high; value++) {
        for (int t = 0; t < threads; t++) {
            starts[self][t * (high - low) + value - low] = sum;
            sum += counts[t][value];
        }
    }
    *totals[self] = sum;
}

/* Moves keys to the places of their digits, each of which goes up by one with every key. */
KERNEL_HOT static void move_keys(const uint32_t *from, int64_t key_total, uint32_t *to, int shift, uint32_t mask,
                                 int64_t *places) {
    for (int64_t i = 0; i < key_total; i++) to[places[digit(from[i], shift, mask)]++] = from[i];
}

/* Moves this thread's keys to their places. `places` is memory of its own, a place for each value of the digit. */
static void move(const uint32_t *from, uint32_t *to, int shift, int64_t *places) {
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high, before = 0;
    for (int t = 0; t < threads; t++) {
        values_of(t, &low, &high);
        for (int64_t value = low; value < high; value++) {
            places[value] = before + starts[t][self * (high - low) + value - low];
        }
        before += *totals[t];
    }
    keys_of(self, &low, &high);
    move_keys(from + low, high - low, to, shift, (uint32_t)radix - 1, places);
}

/* How many digits keys have. */
static int passes(void) {
    int digits = 1;
    while ((max_key - 1) >> (digits * digit_bits) > 0) digits++;
    return digits;
}

static void sort(int64_t *places) {
    for (int pass = 0; pass < passes(); pass++) {
        const uint32_t *from = keys[pass % 2];
        const int shift = pass * digit_bits;
        count(from, shift);
        comem_barrier();
        add_up();
        comem_barrier();
        move(from, keys[(pass + 1) % 2], shift, places);
        comem_barrier();
    }
}

static void work(void *unused) {
    (void)unused;
    int64_t low, high, *places = kernel_private((size_t)radix * sizeof *places);
    keys_of(comem_thread(), &low, &high);
    for (int warm = 0; warm < 2; warm++) { /* the first sort to warm up */
        for (int64_t i = low; i < high; i++) {
            keys[0][i] = first_key(i);
            keys[1][i] = 0;
        }
        comem_barrier();
        double start = now();
        sort(places);
        if (comem_thread() == 0) kernel_seconds = now() - start;
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* A part of int64_t for each thread. */
static int64_t **new_parts(const char *label, const size_t *bytes) {
    const int threads = comem_threads();
    void **parts = kernel_private((size_t)threads * sizeof *parts);
    int64_t **typed = kernel_private((size_t)threads * sizeof *typed);
    kernel_alloc_parts(label, bytes, parts);
    for (int t = 0; t < threads; t++) typed[t] = parts[t];
    return typed;
}

static void new_shared_memory(void) {
    const int threads = comem_threads();
    comem_region_options options;
    memset(&options, 0, sizeof options);
    options.home = COMEM_HOME_BLOCK;
    options.alignment = KERNEL_PAGE;
    for (int which = 0; which < 2; which++) {
        options.label = which == 0 ? "keys" : "other keys";
        keys[which] = comem_alloc_all(kernel_round_up((size_t)key_count * KEY_BYTES, KERNEL_PAGE), &options);
        if (!keys[which]) refuse("radix", "no shared memory");
    }
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    for (int t = 0; t < threads; t++) bytes[t] = (size_t)radix * sizeof(int64_t);
    counts = new_parts("counts", bytes);
    for (int t = 0; t < threads; t++) {
        int64_t low, high;
        values_of(t, &low, &high);
        bytes[t] = (size_t)((high - low) * threads) * sizeof(int64_t);
    }
    starts = new_parts("starts", bytes);
    for (int t = 0; t < threads; t++) bytes[t] = sizeof(int64_t);
    totals = new_parts("totals", bytes);
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Whether the keys are in order, and are those there were at first: their sums of two kinds are the same. */
static int sorted(const uint32_t *result) {
    uint64_t plain = 0, mixed = 0;
    int in_order = 1;
    for (int64_t i = 0; i < key_count; i++) {
        plain += (uint64_t)first_key(i) - result[i];
        mixed += mix(first_key(i)) - mix(result[i]);
        in_order &= i == 0 || result[i - 1] <= result[i];
    }
    return in_order && plain == 0 && mixed == 0;
}

/* Whether a count of every key gives the same array. */
static int agrees(const uint32_t *result) {
    int64_t *count_of_key = kernel_private((size_t)max_key * sizeof *count_of_key), place = 0;
    for (int64_t i = 0; i < key_count; i++) count_of_key[first_key(i)]++;
    for (int64_t key = 0; key < max_key; key++) {
        for (int64_t n = 0; n < count_of_key[key]; n++) {
            if (result[place++] != (uint32_t)key) return 0;
        }
    }
    return 1;
}

static uint64_t checksum(const uint32_t *result) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < key_count; i++) sum = mix(sum ^ result[i]);
    return sum;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--keys", &key_count, NULL, NULL, "keys to sort"},
        {"--radix", &radix, NULL, NULL, "values of a digit, a power of two"},
        {"--max-key", &max_key, NULL, NULL, "keys are below this"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {50000, 64, 1 << 15}},
        {"hlrc", "HLRC on UDP, table 1: 20 x 2^20 keys", {20 << 20, 1024, 1 << 20}},
        {"large", "four times HLRC on UDP", {80 << 20, 1024, 1 << 20}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (key_count < 1 || radix < 2 || radix > 1 << 20 || (radix & (radix - 1)) != 0 ||
         max_key < 2 || max_key > INT32_MAX) {
        refuse("radix", "there is at least one key, the radix is a power of two up to 2^20, and keys are below 2^31");
    }
    while ((int64_t)1 << digit_bits < radix) digit_bits++;
    new_shared_memory();
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const uint32_t *result = keys[passes() % 2];
    const int right = sorted(result) && (!kernel_check || agrees(result));
    printf("radix keys=%" PRId64 " radix=%" PRId64 " max_key=%" PRId64, key_count, radix, max_key);
    return kernel_finish(checksum(result), right);
}
