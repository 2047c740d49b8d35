/* Workers of the PARMACS process model use global variables. Under `share` what they write is everybody's, under `copy`
 * it is theirs; the argument says which is expected. */
#include "comem_parmacs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

COMEM_PROCESS_CONSTRUCTOR_

enum { WORKERS_MAX = 16, ROUNDS = 3 };
enum { LOCK = 1, BARRIER = 2 };

static int workers, round_of_main;
static const char *name = "unset";
static struct {
    long total;
    long rounds[WORKERS_MAX];
} results;
static double grid[1 << 20];
static int share;

static void fail(const char *what) {
    fprintf(stderr, "slot %d: not so: %s\n", comem_worker_slot(), what);
    exit(1);
}

static void work(void) {
    int me = comem_worker_slot();
    if (strcmp(name, "set before CREATE") != 0 || workers < 1 || round_of_main < 1)
        fail("what main had set");
    comem_parmacs_lock(LOCK);
    results.total += me + 1;
    comem_parmacs_unlock(LOCK);
    results.rounds[me] = round_of_main;
    grid[me << 15] = me + 0.5;
    comem_barrier_of(BARRIER, (unsigned)workers);
    if (share) {
        for (int i = 0; i < workers; i++)
            if (results.rounds[i] != round_of_main || grid[i << 15] != i + 0.5)
                fail("what other workers wrote");
    }
}

int main(int argc, char **argv) {
    share = argc > 1 && strcmp(argv[1], "share") == 0;
    workers = comem_worker_slots() < WORKERS_MAX ? comem_worker_slots() : 4;
    name = "set before CREATE";
    for (round_of_main = 1; round_of_main <= ROUNDS; round_of_main++) {
        comem_create_workers(work, workers);
        comem_wait_workers(workers - 1);
        long all = (long)workers * (workers + 1) / 2 * round_of_main;
        if (share && results.total != all)
            fail("the workers' sum");
        if (!share && results.total >= all && comem_slot_node(workers - 1) != 0)
            fail("workers have variables of their own");
    }
    if (argc > 2)
        exit(atoi(argv[2]));
    puts("ok");
    return 0;
}
