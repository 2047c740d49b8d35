/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * waits: lets a thread wait for longer than ten seconds, and then goes on as if nothing had been; the argument says for
 * what.
 */
#include <comem.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *what;
static volatile int *word; /* shared */

static void pause_for(double seconds) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
}

/* One thread lets the other wait. */
static void work(void *unused) {
    const int lazy = comem_thread() == (!strcmp(what, "first") ? 0 : comem_threads() - 1);
    (void)unused;
    if (!strcmp(what, "lock") && lazy) comem_lock(7);
    comem_barrier();
    if (!strcmp(what, "word") && !lazy) *word = 1;
    if (!strcmp(what, "asked") && !lazy) kill(getpid(), SIGUSR1);
    if (lazy) pause_for(!strcmp(what, "asked") ? 1.0 : 11.5);
    if (!strcmp(what, "lock")) {
        if (!lazy) comem_lock(7);
        comem_unlock(7);
    }
    if (!strcmp(what, "flag")) {
        if (lazy) comem_flag_set(3, 1);
        comem_flag_wait(3, 1);
    }
    comem_barrier();
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0 || argc < 2) return 3;
    what = argv[1];
    word = comem_alloc_all(4096, NULL);
    comem_parallel(work, NULL);
    if (comem_node() == 0) printf("waits: ok\n");
    return comem_finish() != 0;
}
