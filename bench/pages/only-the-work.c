/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A library to preload: ends a program on shared pages when its parallel phase is over, so that its counters hold that
 * phase alone and not the check of the result afterwards, which reads all memory on one node.
 *
 *   cc -shared -fPIC bench/pages/only-the-work.c -o only-the-work.so
 *   LD_PRELOAD=./only-the-work.so comem run -n 2 --stats FILE -- PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The function of that name behind this library's; what dlsym gives is copied, since ISO C has no cast for it. */
static void find(const char *name, void *function, size_t bytes) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "comem: no %s behind only-the-work.so; preload it into a program linked with libcomem.so\n",
                name);
        exit(3);
    }
    memcpy(function, &found, bytes);
}

int comem_parallel(void (*work)(void *), void *argument);

int comem_parallel(void (*work)(void *), void *argument) {
    int (*parallel)(void (*)(void *), void *);
    int (*finish)(void);
    find("comem_parallel", &parallel, sizeof parallel);
    find("comem_finish", &finish, sizeof finish);
    const int failed = parallel(work, argument) != 0;
    exit(finish() != 0 || failed ? 3 : 0);
}
