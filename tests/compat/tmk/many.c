/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Process 0 distributes more than an inbox holds while the others wait at a barrier: small values again and again, and
 * a large variable at once.
 */
#include "../check.h"
#include <tmk.h>

#define ROUNDS 6000
#define WORDS (9 << 20)

static int round_now;
static long large[WORDS];

int main(int argc, char **argv) {
    int i;
    Tmk_startup(argc, argv);
    for (i = 1; Tmk_proc_id == 0 && i <= ROUNDS; i++) {
        Tmk_lock_acquire(1);
        round_now = i;
        Tmk_distribute(&round_now, sizeof round_now);
        Tmk_lock_release(1);
    }
    Tmk_barrier(0);
    CHECK(round_now == ROUNDS);
    if (Tmk_proc_id == 0) {
        for (i = 0; i < WORDS; i++) large[i] = i;
        Tmk_distribute(large, sizeof large);
    }
    Tmk_barrier(0);
    for (i = 0; i < WORDS; i++) CHECK(large[i] == i);
    if (Tmk_proc_id == 0) printf("ok\n");
    Tmk_exit(0);
}
