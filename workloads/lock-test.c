/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * lock-test: all threads fight for one lock and increment a shared number under it (DSM/IP, section 4.1). Were two
 * threads ever inside at once, an increment would be lost, or one would find the other's number in `inside`.
 */
#include "common.h"

enum { LOCK = 1, COUNTER = 0, INSIDE = 1, NOBODY = 0 };

static int64_t increments = 10000;
static comem_array_i64 state; /* the counter, and who is inside (a thread's number plus one) */
static double seconds;
static int64_t wrong;

static void work(void *unused) {
    (void)unused;
    const int64_t self = comem_thread() + 1;
    int64_t violations = 0;
    comem_barrier();
    double start = now();
    for (int64_t i = 0; i < increments; i++) {
        comem_lock(LOCK);
        violations += comem_read_i64(state, INSIDE) != NOBODY;
        comem_write_i64(state, INSIDE, self);
        comem_write_i64(state, COUNTER, comem_read_i64(state, COUNTER) + 1);
        violations += comem_read_i64(state, INSIDE) != self;
        comem_write_i64(state, INSIDE, NOBODY);
        comem_unlock(LOCK);
    }
    comem_barrier();
    double end = now();
    comem_reduce_i64(COMEM_SUM, &violations, 1);
    if (self == 1) {
        seconds = end - start;
        wrong = violations;
    }
}

int main(int argc, char **argv) {
    const option options[] = {{"--increments", &increments, NULL, NULL, "how often each thread takes the lock"}};
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    /* The test is about locks, so what they protect is consistent whatever the job's engine. */
    comem_object_options consistent = {0};
    consistent.engine = "msi";
    consistent.label = "counter";
    state = comem_new_i64(2, &consistent);
    comem_parallel(work, NULL);
    int failed = 0;
    if (comem_node() == 0) {
        const int64_t total = comem_read_i64(state, COUNTER), expected = increments * comem_threads();
        failed = total != expected || wrong != 0;
        printf("lock-test: %d threads %" PRId64 " increments each total=%" PRId64 " expected=%" PRId64
               " violations=%" PRId64 " time_s=%.6f us_per_acquire=%.3f %s\n",
               comem_threads(), increments, total, expected, wrong, seconds,
               seconds * 1e6 / (double)(expected ? expected : 1), failed ? "WRONG" : "ok");
    }
    return comem_finish() != 0 || failed;
}
