/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * barrier-test: passes very many barriers (DSM/IP, section 4.1). Before each, every thread writes which one it has
 * reached; after it, every other thread must have reached it too, and none can be more than one further.
 */
#include "common.h"

static int64_t barriers = 10000;
static comem_array_i64 reached; /* by each thread */
static double seconds;
static int64_t wrong;

static void work(void *unused) {
    (void)unused;
    const uint64_t threads = (uint64_t)comem_threads(), self = (uint64_t)comem_thread();
    int64_t violations = 0;
    comem_barrier();
    double start = now();
    for (int64_t round = 1; round <= barriers; round++) {
        comem_write_i64(reached, self, round);
        comem_barrier();
        uint64_t other = (self + 1 + (uint64_t)round % threads) % threads;
        int64_t seen = comem_read_i64(reached, other);
        violations += seen < round || seen > round + 1;
    }
    double end = now();
    comem_reduce_i64(COMEM_SUM, &violations, 1);
    if (self == 0) {
        seconds = end - start;
        wrong = violations;
    }
}

int main(int argc, char **argv) {
    const option options[] = {{"--barriers", &barriers, NULL, NULL, "how many barriers to pass"}};
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    /* The test is about barriers, so its array is consistent whatever the job's engine; one unit for each thread. */
    comem_object_options consistent = {0};
    consistent.engine = "msi";
    consistent.unit_elements = 1;
    consistent.label = "reached";
    reached = comem_new_i64((uint64_t)comem_threads(), &consistent);
    comem_parallel(work, NULL);
    if (comem_node() == 0) {
        printf("barrier-test: %d threads barriers=%" PRId64 " violations=%" PRId64
               " time_s=%.6f us_per_barrier=%.3f %s\n",
               comem_threads(), barriers, wrong, seconds, seconds * 1e6 / (double)(barriers ? barriers : 1),
               wrong ? "WRONG" : "ok");
    }
    int failed = comem_node() == 0 && wrong != 0;
    return comem_finish() != 0 || failed;
}
