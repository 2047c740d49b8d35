/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A program for Brazos: a row of cells, each alive or not, by rule 110. Every thread has a part of the row, and adds
 * the cells that are alive in the end to a sum under a lock.
 *
 *     comem-cc -O2 -o brazos examples/brazos.c
 *     ./brazos                            one thread
 *     comem run -n 4 -t 2 ./brazos        four processes of two threads
 */
#include <brazos.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 100000, STEPS = 200, RULE = 110 };

BARDEC(step_done)
LOCKDEC(sum_lock)

/* Private to each process. The memory that they point to is shared. */
static unsigned char *rows[2];
static long *alive;

static unsigned char next_cell(const unsigned char *row, int i) {
    const int left = row[(i + CELLS - 1) % CELLS], right = row[(i + 1) % CELLS];
    return RULE >> (4 * left + 2 * row[i] + right) & 1;
}

int UserMain(int GlobalId, int LocalId) {
    const int threads = brazos_threads();
    const int low = (int)((long)CELLS * GlobalId / threads), high = (int)((long)CELLS * (GlobalId + 1) / threads);
    long count = 0;

    /* One thread of each process asks for the memory, for its whole process. */
    if (LocalId == 0) {
        rows[0] = (unsigned char *)G_MALLOC_ALL(CELLS);
        rows[1] = (unsigned char *)G_MALLOC_ALL(CELLS);
        alive = (long *)G_MALLOC_ALL(sizeof *alive);
    }
    BARRIER(step_done, threads)

    for (int i = low; i < high; i++) rows[0][i] = (unsigned)i * 2654435761u >> 31;
    BARRIER(step_done, threads)
    for (int step = 0; step < STEPS; step++) {
        for (int i = low; i < high; i++) rows[1 - step % 2][i] = next_cell(rows[step % 2], i);
        BARRIER(step_done, threads)
    }

    for (int i = low; i < high; i++) count += rows[STEPS % 2][i];
    LOCK(sum_lock)
    *alive += count;
    UNLOCK(sum_lock)
    BARRIER(step_done, threads)
    if (GlobalId == 0) printf("%ld of %d cells are alive after %d steps\n", *alive, CELLS, STEPS);
    return 0;
}
