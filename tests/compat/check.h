/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * check.h: what the tests of other systems' interfaces share.
 */
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with a sentence unless the condition holds. */
#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
