/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Regions are created and destroyed, more than an inbox holds news of, while other nodes wait: for a barrier, and for
 * the end of a forked function.
 */
#include "../check.h"
#include <quarks.h>

#define ROUNDS 3000
#define WAITING 5000

static Id *barrier;

static void wait_for_master(void) { Qk_wait_barrier(*barrier, 2); }

static void create_many(void) {
    unsigned long address;
    Id i;
    for (i = 0; i < WAITING; i++) Qk_create_region(100000 + i, 64, &address);
}

int main(int argc, char **argv) {
    unsigned long address;
    int i;
    Qk_initialize();
    Qk_create_region(1, sizeof *barrier, (unsigned long *)&barrier);
    *barrier = Qk_newbarrier();
    Qk_fork(wait_for_master);
    for (i = 0; i < ROUNDS; i++) {
        Qk_create_region(2, 64, &address);
        Qk_destroy_region(2);
    }
    Qk_wait_barrier(*barrier, 2);
    Qk_wait_for_threads();
    Qk_fork(create_many);
    Qk_wait_for_threads();
    CHECK(Qk_open_region(100000) != 0 && Qk_open_region(100000 + WAITING - 1) != 0);
    printf("ok\n");
    Qk_shutdown(1);
    return 1;
}
