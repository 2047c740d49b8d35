/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * parmacs.h: what the workloads in PARMACS form take from the C ones: command lines, random numbers, the clock. No call
 * of comem.h is among it: the programs share memory through the macros alone.
 */
#ifndef WORKLOADS_PARMACS_H
#define WORKLOADS_PARMACS_H

#define COMEM_SEQUENTIAL
#include "../kernel.h"

/* Ends a program with its line of results. */
static inline int parmacs_finish(int64_t workers, double seconds, uint64_t checksum, int right) {
    printf(" workers=%" PRId64 " time_s=%.6f checksum=%016" PRIx64 " %s\n", workers, seconds, checksum,
           right ? "ok" : "WRONG");
    return !right;
}

#endif /* WORKLOADS_PARMACS_H */
