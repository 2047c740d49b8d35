/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Checks of a test program that goes on after one has failed: it ends with status 1 if `failures` is not zero.
 */
#ifndef COMEM_TEST_CHECK_H
#define COMEM_TEST_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                            \
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);                                                      \
        }                                                                                                            \
    } while (0)

#endif
