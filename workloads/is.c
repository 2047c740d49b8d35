/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * is: the ranks of integer keys by counting (NAS's IS in the form of Rice University; HLRC on UDP, section 4.2).
 *
 * A round has three phases between barriers. Thread 0 clears the shared array of buckets, one for each value of a key.
 * Every thread counts its own keys in memory of its own, and adds the counts to the shared buckets. Every thread reads
 * all buckets and computes the ranks of its keys: how many keys are smaller. The buckets are dealt out in sections with
 * a lock each; a thread begins with a section of its own, so that not all queue for the first.
 *
 * As in NAS's IS, two keys change in every round. Everything is computed in integers, and a number made of all ranks
 * is the same for any number of threads.
 */
#include "kernel.h"

enum { SEED = 5 };

static int64_t key_count = 1 << 16, bucket_count = 1 << 11, rounds = 5, sections = 8;

static int32_t *buckets; /* shared */
static void **results; /* shared, for each thread: the numbers below */

/* A number made of a thread's ranks, and how many rounds it missed keys in. */
enum { RESULT, MISSED, RESULTS };

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* The mean of four random numbers: keys in the middle are frequent. */
static int32_t first_key(int64_t i) {
    uint64_t sum = 0;
    for (uint64_t part = 0; part < 4; part++) sum += mix(SEED + 4 * (uint64_t)i + part) % (uint64_t)bucket_count;
    return (int32_t)(sum / 4);
}

/* Changes two of the keys, of which this thread has [low, high): `keys[0]` is key `low`. */
static void change_keys(int32_t *keys, int64_t low, int64_t high, int64_t round) {
    const int64_t first = round % key_count, second = (round + rounds) % key_count;
    if (first >= low && first < high) keys[first - low] = (int32_t)(round % bucket_count);
    if (second >= low && second < high) keys[second - low] = (int32_t)(bucket_count - 1 - round % bucket_count);
}

/* What one key's rank in one round adds to the result: cheap, for it is among what is timed. */
static inline uint64_t trace(int64_t round, int64_t key, int64_t rank) {
    return (uint64_t)rank * (2 * (uint64_t)key + 1) * (2 * (uint64_t)round + 1);
}

/* What keys number `low` and following add in a round, with the rank of each bucket's keys. */
KERNEL_HOT static uint64_t trace_keys(int64_t round, const int32_t *keys, int64_t low, int64_t high,
                                      const int32_t *ranks) {
    uint64_t sum = 0;
    for (int64_t i = low; i < high; i++) sum += trace(round, i, ranks[keys[i - low]]);
    return sum;
}

KERNEL_HOT static void count_keys(const int32_t *keys, int64_t count, int32_t *counts) {
    memset(counts, 0, (size_t)bucket_count * sizeof *counts);
    for (int64_t i = 0; i < count; i++) counts[keys[i]]++;
}

/* ---- a round --------------------------------------------------------------------------------------------------- */

/* Adds to each of `count` buckets. */
KERNEL_HOT static void add(int32_t *restrict to, const int32_t *restrict mine, int64_t count) {
    for (int64_t b = 0; b < count; b++) to[b] += mine[b];
}

static void add_section(int64_t section, const int32_t *mine) {
    int64_t low, high;
    kernel_part(bucket_count, sections, section, &low, &high);
    comem_lock((uint64_t)section);
    add(buckets + low, mine + low, high - low);
    comem_unlock((uint64_t)section);
}

/* Adds this thread's counts to the shared ones. */
static void add_counts(const int32_t *mine) {
    const int64_t first = sections * comem_thread() / comem_threads();
    for (int64_t s = 0; s < sections; s++) add_section((first + s) % sections, mine);
}

/* Turns all counts into the rank of a bucket's keys; gives how many keys there are in all. */
KERNEL_HOT static int64_t rank_buckets(int32_t *ranks) {
    int32_t sum = 0;
    for (int64_t b = 0; b < bucket_count; b++) {
        ranks[b] = sum;
        sum += buckets[b];
    }
    return sum;
}

/* What a thread has of its own: its keys [low, high), and room for counts or ranks. */
typedef struct own {
    int64_t low, high;
    int32_t *keys, *counts;
    uint64_t result, missed;
} own;

static void do_round(own *self, int64_t round) {
    if (comem_thread() == 0) memset(buckets, 0, (size_t)bucket_count * sizeof *buckets);
    change_keys(self->keys, self->low, self->high, round);
    count_keys(self->keys, self->high - self->low, self->counts);
    comem_barrier();
    add_counts(self->counts);
    comem_barrier();
    if (rank_buckets(self->counts) != key_count) self->missed++;
    self->result += trace_keys(round, self->keys, self->low, self->high, self->counts);
    comem_barrier();
}

static void work(void *unused) {
    (void)unused;
    own self;
    self.result = self.missed = 0;
    kernel_part(key_count, comem_threads(), comem_thread(), &self.low, &self.high);
    self.keys = kernel_private((size_t)(self.high - self.low) * sizeof *self.keys);
    self.counts = kernel_private((size_t)bucket_count * sizeof *self.counts);
    for (int64_t i = self.low; i < self.high; i++) self.keys[i - self.low] = first_key(i);
    comem_barrier();
    do_round(&self, 0); /* to warm up */
    self.result = 0;
    double start = now();
    for (int64_t round = 0; round < rounds; round++) do_round(&self, round);
    if (comem_thread() == 0) kernel_seconds = now() - start;
    uint64_t *mine = results[comem_thread()];
    mine[RESULT] = self.result;
    mine[MISSED] = self.missed;
    comem_barrier();
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* The result as one thread computes it in plain memory: the rank of a key is how many keys come before its bucket. */
static uint64_t expected(void) {
    int32_t *keys = kernel_private((size_t)key_count * sizeof *keys);
    int64_t *smaller = kernel_private(((size_t)bucket_count + 1) * sizeof *smaller);
    uint64_t result = 0;
    for (int64_t i = 0; i < key_count; i++) keys[i] = first_key(i);
    for (int64_t round = 0; round < rounds; round++) {
        change_keys(keys, 0, key_count, round);
        memset(smaller, 0, ((size_t)bucket_count + 1) * sizeof *smaller);
        for (int64_t i = 0; i < key_count; i++) smaller[keys[i] + 1]++;
        for (int64_t b = 1; b <= bucket_count; b++) smaller[b] += smaller[b - 1];
        for (int64_t i = 0; i < key_count; i++) result += trace(round, i, smaller[keys[i]]);
    }
    return result;
}

/* Whether the buckets hold every key of the last round, each in its place. */
static int buckets_are_right(void) {
    int32_t *counts = kernel_private((size_t)bucket_count * sizeof *counts);
    int32_t *keys = kernel_private((size_t)key_count * sizeof *keys);
    for (int64_t i = 0; i < key_count; i++) keys[i] = first_key(i);
    for (int64_t round = 0; round < rounds; round++) change_keys(keys, 0, key_count, round);
    for (int64_t i = 0; i < key_count; i++) counts[keys[i]]++;
    return memcmp(counts, buckets, (size_t)bucket_count * sizeof *counts) == 0;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--keys", &key_count, NULL, NULL, "keys"},
        {"--buckets", &bucket_count, NULL, NULL, "keys are below this"},
        {"--rounds", &rounds, NULL, NULL, "how often to rank them, after once to warm up"},
        {"--sections", &sections, NULL, NULL, "parts of the buckets, with a lock each"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {1 << 15, 1 << 12, 5, 4}},
        {"hlrc", "HLRC on UDP, table 1", {1 << 20, 1 << 15, 5, 8}},
        {"jiajia", "JIAJIA", {1 << 20, 1 << 15, 5, 8}},
        {"large", "four times HLRC on UDP", {1 << 22, 1 << 17, 5, 8}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (key_count < 1 || key_count > INT32_MAX || bucket_count < 1 || bucket_count > INT32_MAX || rounds < 1 ||
        sections < 1 || sections > bucket_count) {
        refuse("is", "there are fewer than 2^31 keys and buckets, a round or more, and a bucket or more in a section");
    }
    comem_region_options options;
    memset(&options, 0, sizeof options);
    options.label = "buckets";
    options.alignment = KERNEL_PAGE;
    buckets = comem_alloc_all(kernel_round_up((size_t)bucket_count * sizeof *buckets, KERNEL_PAGE), &options);
    if (!buckets) refuse("is", "no shared memory");
    size_t *bytes = kernel_private((size_t)comem_threads() * sizeof *bytes);
    results = kernel_private((size_t)comem_threads() * sizeof *results);
    for (int t = 0; t < comem_threads(); t++) bytes[t] = RESULTS * sizeof(uint64_t);
    kernel_alloc_parts("results", bytes, results);
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    uint64_t sum = 0, missed = 0;
    for (int t = 0; t < comem_threads(); t++) {
        sum += ((uint64_t *)results[t])[RESULT];
        missed += ((uint64_t *)results[t])[MISSED];
    }
    const int right = !missed && buckets_are_right() && (!kernel_check || sum == expected());
    printf("is keys=%" PRId64 " buckets=%" PRId64 " rounds=%" PRId64 " sections=%" PRId64, key_count, bucket_count,
           rounds, sections);
    return kernel_finish(sum, right);
}
