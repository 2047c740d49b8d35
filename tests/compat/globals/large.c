/* Arrays that -mcmodel=medium and large keep apart: zero at first, with values, and in common. Says `ok` last. */
#include "comem_parmacs.h"
#include <stdio.h>

COMEM_PROCESS_CONSTRUCTOR_

#ifndef BYTES
#define BYTES 100000000
#endif

static char zeros[BYTES];
static int values[100000] = {5};
int common[100000] __attribute__((common));
static int small;

static void work(void) {
    if (zeros[BYTES - 1] != 7 || values[0] != 5 || values[99999] != 8 || common[99999] != 9 || small != 10)
        printf("a worker sees %d %d %d %d %d\n", zeros[BYTES - 1], values[0], values[99999], common[99999], small);
}

int main(void) {
    zeros[BYTES - 1] = 7;
    values[99999] = 8;
    common[99999] = 9;
    small = 10;
    comem_create_worker(work);
    comem_wait_workers(1);
    printf("ok\n");
    return 0;
}
