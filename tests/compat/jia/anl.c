/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program with the ANL macros, as JIAJIA has them: with and without semicolons.
 */
#include "../check.h"
#include <jia.h>

MAIN_ENV

#define COUNTERS 70

struct global {
    long sum[COUNTERS];
    long total;
};

static struct global *global;
static double *extra;
LOCKDEC(total_lock)
ALOCKDEC(locks, COUNTERS)
BARDEC(start)
PAUSEDEC(unused)
GSDEC(loop)

static void work(void) {
    int i;
    BARRIER(start, jiahosts)
    for (i = 0; i < COUNTERS; i++) {
        ALOCK(locks, i)
        global->sum[i] += jiapid + i;
        AULOCK(locks, i);
    }
    LOCK(total_lock);
    global->total += 1;
    UNLOCK(total_lock)
    BARRIER(start, jiahosts);
}

int main(int argc, char **argv) {
    double begin, end;
    int i, first;
    jia_init(argc, argv);
    MAIN_INITENV(, 1000)
    CLOCK(begin)
    LOCKINIT(total_lock)
    ALOCKINIT(locks, COUNTERS);
    BARINIT(start)
    PAUSEINIT(unused)
    GSINIT(loop)
    global = (struct global *)G_MALLOC(sizeof *global);
    extra = (double *)G2_MALLOC(8 * sizeof(double), 0)
    /* More locks than JIAJIA had, and no two the same. */
    for (i = 0; i < COUNTERS; i++) CHECK(locks[i] != total_lock && locks[i] == locks[0] + i);
    work();
    first = jiahosts * (jiahosts - 1) / 2;
    for (i = 0; i < COUNTERS; i++) CHECK(global->sum[i] == first + (long)i * jiahosts);
    CHECK(global->total == jiahosts);
    jia_wtnt(extra, sizeof(double));
    if (jiapid == jiahosts - 1) extra[3] = 2.5;
    jia_wtntw(&extra[3]);
    WAIT_FOR_END(jiahosts - 1)
    CHECK(extra[3] == 2.5);
    CLOCK(end);
    CHECK(end >= begin && unused == 0 && loop == 0);
    if (jiapid == 0) printf("ok\n");
    MAIN_END
    jia_exit();
    return 0;
}
