/* Everything that brazos.h has, by each thread of each process. Also sent through m4, so there are no quotation marks
 * of one stroke in it, and compiled as C++. Arguments: processes and threads of each, then two words. */
#include <brazos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define ROUNDS 40
#define LOCKS 3

BARDEC(phase)
LOCKDEC(count_lock)
LOCKDEC(wide_lock)
ALOCKDEC(locks, LOCKS)

struct shared {
    long count, counts[LOCKS], before, behind;
    int seen[64];
    long *piece;
};

/* Each process has these for itself. */
static struct shared *shared;
static int local_sum, written_by;

static void check(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(9);
    }
}

static void count(int threads) {
    int round;
    for (round = 0; round < ROUNDS; round++) {
        const int k = round % LOCKS;
        LOCK(count_lock)
        shared->count++;
        UNLOCK(count_lock)
        ALOCK(locks, k)
        shared->counts[k]++;
        AULOCK(locks, k)
    }
    BARRIER(phase, threads)
    check(shared->count == (long)ROUNDS * threads, "a count under a lock");
    check(shared->counts[0] + shared->counts[1] + shared->counts[2] == shared->count, "counts under an array of locks");
}

/* What was written outside of the lock comes along, also under scope consistency. */
static void order_widely(int id, int threads) {
    long round, seen = -1;
    for (round = 0; round < 10; round++) {
        if (id == 0) {
            shared->before = round + 1;
            LOCK(wide_lock)
            shared->behind = round + 1;
            RC_UNLOCK(wide_lock)
        }
        LAZY_LOCK(wide_lock)
        seen = shared->behind;
        check(shared->before >= seen, "what was written before an RC_UNLOCK");
        UNLOCK(wide_lock)
        BARRIER(phase, threads)
    }
    check(seen <= 10, "a value from nowhere");
}

static void look_at_memory(int id, int threads) {
    if (id == threads - 1) {
        shared->piece = (long *)G_MALLOC(3 * sizeof(long));
        shared->piece[2] = 77;
    }
    BARRIER(phase, threads)
    check(shared->piece[0] == 0 && shared->piece[2] == 77, "memory from one thread");
    BARRIER(phase, threads)
    if (id == 0) G_FREE(shared->piece);
}

static void look_at_globals(int id, int local_id, int threads) {
    if (local_id == 0) written_by = id + 1;
    BARRIER(phase, threads)
    check(written_by == id - local_id + 1, "a global that threads of this process share, and no others");
    __atomic_fetch_add(&local_sum, local_id + 1, __ATOMIC_SEQ_CST);
    BARRIER(phase, threads)
    check(local_sum == brazos_local_threads() * (brazos_local_threads() + 1) / 2, "all threads of this process");
}

static void look_at_arguments(int processes, int threads) {
    char **argv = NULL;
    check(brazos_arguments(&argv) == 5 && brazos_arguments(NULL) == 5, "the number of words");
    check(strcmp(argv[3], "a word") == 0 && strcmp(argv[4], "") == 0 && argv[5] == NULL, "the words");
    check(processes == atoi(argv[1]) && threads == processes * atoi(argv[2]), "processes and threads");
    check(processes * brazos_local_threads() == threads, "threads of a process");
}

int UserMain(int GlobalId, int LocalId) {
    const int threads = brazos_threads();
    uint64_t before = 0, behind = 0;
    int i;
    CLOCK(before)
    LOCKINIT(count_lock)
    ALOCKINIT(locks, LOCKS)
    BARINIT(phase)
    look_at_arguments(brazos_processes(), threads);
    check(GlobalId >= 0 && GlobalId < threads && GlobalId < 64, "a number in the job");
    check(LocalId == GlobalId % brazos_local_threads(), "a number in the process");
    if (LocalId == 0) {
        shared = (struct shared *)G_MALLOC_ALL(sizeof(struct shared));
        large_memory(1 << 16);
    }
    BARRIER(phase, threads)
    shared->seen[GlobalId]++;
    BARRIER(phase, threads)
    for (i = 0; i < threads; i++) check(shared->seen[i] == 1, "each number once");
    check_large_memory(GlobalId, threads, (void *)&phase);
    look_at_globals(GlobalId, LocalId, threads);
    count(threads);
    order_widely(GlobalId, threads);
    look_at_memory(GlobalId, threads);
    CLOCK(behind)
    check(behind >= before, "the clock");
    BARRIER(phase, threads)
    if (GlobalId == 0) printf("ok\n");
    /* A thread that exits with status 0 has ended as if it had returned. */
    if (GlobalId == threads - 1) exit(0);
    return 0;
}
