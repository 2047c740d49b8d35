/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program that has workers and not one variable of its own.
 */
#include "comem_parmacs.h"
#include <stdio.h>

COMEM_PROCESS_CONSTRUCTOR_

static void work(void) { puts("ok"); }

int main(void) {
    comem_create_worker(work);
    comem_wait_workers(1);
    return 0;
}
