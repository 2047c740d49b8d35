/* Workers see the globals as they stood at CREATE, shared memory in both directions, and each other at barriers. Argument: how many
 * processes, the last ones created with CREATE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comem_parmacs.h"

COMEM_PROCESS_CONSTRUCTOR_

struct shared {
    long counter;
    long sum;
    long cells[1024];
};

static struct shared *global;
static int processes = 1;
static double table[100000];       /* zero but for what main writes */
static char words[] = "as it was"; /* .data */
static FILE *out;                  /* the C library's own */
static char unused[300 << 20];
int common_one;

static void work(void) {
    long me;
    long i;
    comem_parmacs_lock((uint64_t)(uintptr_t)&global->counter);
    me = global->counter++;
    comem_parmacs_unlock((uint64_t)(uintptr_t)&global->counter);
    if (strcmp(words, "as it is") != 0 || table[77777] != 7.5 || table[5] != 0 || common_one != 41 || out != stdout)
        comem_g_free((void *)1); /* ends the job with a sentence */
    for (i = me; i < 1024; i += processes) global->cells[i] = me + 1;
    comem_barrier_of(1, (unsigned)processes);
    for (i = 0; i < 1024; i++)
        if (global->cells[i] != i % processes + 1) printf("cell %ld is %ld\n", i, global->cells[i]);
    comem_parmacs_lock(7);
    global->sum += me;
    comem_parmacs_unlock(7);
    comem_barrier_of(2, (unsigned)processes);
    if (global->sum != (long)processes * (processes - 1) / 2) printf("the sum is %ld\n", global->sum);
    table[5] = 1; /* private where processes do not share their globals */
    fprintf(out, "worker in slot %d ended\n", comem_worker_slot());
}

int main(int argc, char **argv) {
    int round;
    if (argc > 1) processes = atoi(argv[1]);
    out = stdout;
    for (round = 0; round < 3; round++) {
        global = (struct shared *)comem_g_malloc(sizeof *global);
        strcpy(words, "as it is");
        table[77777] = 7.5;
        table[5] = 0;
        common_one = 41;
        comem_create_workers(work, processes);
        comem_wait_workers(processes);
        if (global->counter != processes) printf("%ld have counted\n", global->counter);
        comem_g_free(global);
    }
    printf("main ended%s\n", unused[12345] ? "?" : "");
    return 0;
}
