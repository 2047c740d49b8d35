/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The part of comem.h that the kernels in workloads/ use, over ArgoDSM's C interface (https://www.argodsm.com), one
 * thread on a node: to time one source under both.
 *
 * Homes: ArgoDSM's policy `naive` gives each node one part of all shared memory, so what a kernel wants on a node is
 * taken from that node's part, and what it wants dealt out in blocks from around the boundary of the first two (once:
 * there is one). Under its other policies the policy decides.
 */
#ifndef COMEM_H
#define COMEM_H

#include <argo.h>
#include <synchronization/cohort_lock.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COMEM_HOME_ANY, COMEM_HOME_BLOCK, COMEM_HOME_ON };

typedef struct comem_region_options {
    const char *engine, *label;
    int home, home_number;
    size_t alignment;
    unsigned unit_pages;
} comem_region_options;

/* Names of locks beyond these share a lock with another one: water has most, one for each thread and one more. */
enum { COMEM_ARGO_LOCKS = 65, COMEM_ARGO_NODES = 64, COMEM_ARGO_PAGE = 4096 };
static cohortlock_t comem_argo_locks[COMEM_ARGO_LOCKS];
/* What is left of each node's part; under policies other than `naive` all is in the first one's. */
static char *comem_argo_from[COMEM_ARGO_NODES], *comem_argo_to[COMEM_ARGO_NODES];
static int comem_argo_naive;

static inline int comem_node(void) {
    return (int)argo_node_id();
}
static inline int comem_nodes(void) {
    return (int)argo_number_of_nodes();
}
static inline int comem_thread(void) {
    return comem_node();
}
static inline int comem_threads(void) {
    return comem_nodes();
}
static inline int comem_threads_per_node(void) {
    return 1;
}

/* The first page in [from, to) whose home is not before `node`; homes rise with addresses. */
static inline char *comem_argo_part(char *from, char *to, unsigned node) {
    while (from < to) {
        char *page = from + (to - from) / (2 * COMEM_ARGO_PAGE) * COMEM_ARGO_PAGE;
        if (argo_get_homenode(page) < node) {
            from = page + COMEM_ARGO_PAGE;
        } else {
            to = page;
        }
    }
    return from;
}

static inline int comem_start_args(int *argc, char **argv) {
    (void)argc;
    (void)argv;
    const char *const policy = getenv("ARGO_ALLOCATION_POLICY"), *const size = getenv("ARGO_MEMORY_SIZE");
    const size_t bytes = size ? (size_t)strtoull(size, NULL, 0) : 0;
    argo_init(0, 0);
    if (bytes == 0 || comem_nodes() > COMEM_ARGO_NODES) {
        fprintf(stderr, "set ARGO_MEMORY_SIZE, and take at most %d nodes\n", COMEM_ARGO_NODES);
        exit(2);
    }
    for (int i = 0; i < COMEM_ARGO_LOCKS; i++) comem_argo_locks[i] = argo_cohortlock_create();
    comem_argo_naive = !policy || atoi(policy) == 0;
    const size_t all = bytes - (size_t)4 * COMEM_ARGO_PAGE; /* locks have taken some */
    char *block = (char *)collective_alloc(all);
    char *const end = block + all - (uintptr_t)(block + all) % COMEM_ARGO_PAGE;
    block += (COMEM_ARGO_PAGE - (uintptr_t)block % COMEM_ARGO_PAGE) % COMEM_ARGO_PAGE;
    comem_argo_from[0] = block;
    comem_argo_to[0] = end;
    for (int node = 1; comem_argo_naive && node < comem_nodes(); node++) {
        comem_argo_from[node] = comem_argo_to[node - 1] = comem_argo_part(block, end, (unsigned)node);
        comem_argo_to[node] = end;
    }
    return 0;
}
static inline const char *comem_last_error(void) {
    return "";
}
static inline int comem_barrier(void) {
    argo_barrier(1);
    return 0;
}
static inline int comem_lock(uint64_t lock) {
    argo_cohortlock_lock(comem_argo_locks[lock % COMEM_ARGO_LOCKS]);
    return 0;
}
static inline int comem_unlock(uint64_t lock) {
    argo_cohortlock_unlock(comem_argo_locks[lock % COMEM_ARGO_LOCKS]);
    return 0;
}
static inline int comem_parallel(void (*function)(void *argument), void *argument) {
    comem_barrier();
    function(argument);
    comem_barrier();
    return 0;
}
/* ArgoDSM's memory is zero at first. Every block has pages of its own. */
static inline void *comem_alloc_all(size_t bytes, const comem_region_options *options) {
    const int placement = comem_argo_naive && options ? options->home : COMEM_HOME_ANY;
    const size_t pages = (bytes + COMEM_ARGO_PAGE - 1) / COMEM_ARGO_PAGE * COMEM_ARGO_PAGE;
    if (placement == COMEM_HOME_BLOCK && comem_nodes() == 2 && comem_argo_to[0] == comem_argo_from[1]) {
        const size_t first = pages / COMEM_ARGO_PAGE / 2 * COMEM_ARGO_PAGE;
        comem_argo_to[0] -= first;
        comem_argo_from[1] += pages - first;
        return comem_argo_to[0];
    }
    const int node = placement == COMEM_HOME_ON ? options->home_number : 0;
    char *const block = comem_argo_from[node];
    if (pages > (size_t)(comem_argo_to[node] - block)) return NULL;
    comem_argo_from[node] += pages;
    return block;
}
static inline int comem_finish(void) {
    comem_barrier();
    argo_finalize();
    return 0;
}

#endif /* COMEM_H */
