/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * debugged: node 0 runs under gdb, which stops in `look`, where pages of node 1's are not here yet. Both nodes then
 * read what the other has written, fault by fault.
 */
#include <comem.h>

#include <stdio.h>
#include <stdlib.h>

enum { PAGES = 64, WORDS = 4096 / sizeof(long) };

/* Where gdb looks; not static, so that it is found without debugging information. */
void look(void);
extern const long *volatile looked_at;

const long *volatile looked_at;

__attribute__((noinline)) void look(void) { __asm__ volatile("" ::: "memory"); }

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

int main(void) {
    if (comem_start() != 0) fail(comem_last_error());
    int node = comem_node();
    long *pages[2];
    for (int writer = 0; writer < 2; writer++) {
        pages[writer] = comem_alloc_all(PAGES * WORDS * sizeof(long), NULL);
        if (!pages[writer]) fail(comem_last_error());
    }
    for (long page = 0; page < PAGES; page++) pages[node][page * WORDS + 3] = 1000 * node + page;
    comem_barrier();
    looked_at = &pages[1][(PAGES - 1) * WORDS + 3];
    if (node == 0) look();
    for (int reader = 0; reader < 2; reader++) {
        for (long page = 0; page < PAGES && node == reader; page++) {
            if (pages[1 - node][page * WORDS + 3] != 1000 * (1 - node) + page) fail("not what the other has written");
        }
        comem_barrier();
    }
    if (comem_finish() != 0) return 1;
    if (node == 0) printf("debugged: ok\n");
    return 0;
}
