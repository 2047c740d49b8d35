/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * reductions: least and greatest of numbers of which one is a NaN, whichever thread's it is; with three threads.
 */
#include <comem.h>

#include "check.h"

#include <math.h>
#include <stdio.h>

enum { THREADS = 3 };

static void work(void *unused) {
    (void)unused;
    for (int whose = 0; whose < THREADS; whose++) {
        for (int operation = COMEM_SUM; operation <= COMEM_MAX; operation++) {
            double values[2] = {comem_thread() == whose ? (double)NAN : comem_thread(), comem_thread()};
            CHECK(comem_reduce_f64(operation, values, 2) == 0);
            CHECK(isnan(values[0]));
            CHECK(values[1] == (operation == COMEM_SUM ? 3 : operation == COMEM_MIN ? 0 : 2));
        }
    }
}

int main(void) {
    CHECK(comem_start() == 0 && comem_threads() == THREADS);
    CHECK(comem_parallel(work, NULL) == 0);
    CHECK(comem_finish() == 0);
    if (failures == 0) puts("reductions: ok");
    return failures != 0;
}
