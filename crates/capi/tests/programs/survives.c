/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * survives: a program that goes on after a bad access, that cancels a thread of its own, and that locks shared memory.
 */
#define _GNU_SOURCE 1
#include <comem.h>

#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, LOCK = 5, IS_LOCKED = 1, WAITS, MAY_GO, WROTE, HAS_READ };

static sigjmp_buf back;

static void escape(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

/* A page that was refused when nothing was allocated there is memory like any other once something is. */
static void beyond_the_end(void) {
    struct sigaction action = {.sa_handler = escape}, old;
    sigemptyset(&action.sa_mask);
    volatile char *first = comem_alloc(PAGE);
    CHECK(first != NULL);
    sigaction(SIGSEGV, &action, &old);
    if (sigsetjmp(back, 1) == 0) {
        first[PAGE] = 1;
        CHECK(!"an access beyond the end of an allocation goes on");
    }
    sigaction(SIGSEGV, &old, NULL);
    volatile char *second = comem_alloc(PAGE);
    CHECK(second == first + PAGE);
    second[0] = 2;
    CHECK(second[0] == 2);
}

static volatile int has_lock;

static void *locks(void *unused) {
    (void)unused;
    CHECK(comem_flag_set(WAITS, 1) == 0);
    CHECK(comem_lock(LOCK) == 0);
    has_lock = 1;
    CHECK(comem_unlock(LOCK) == 0);
    for (;;) pthread_testcancel();
    return NULL;
}

/* A thread is cancelled while it waits in Comem: it ends where it looks for that itself. */
static void cancelled(void) {
    if (comem_node() == 0) {
        CHECK(comem_lock(LOCK) == 0);
        CHECK(comem_flag_set(IS_LOCKED, 1) == 0);
        CHECK(comem_flag_wait(MAY_GO, 1) == 0);
        CHECK(comem_unlock(LOCK) == 0);
        return;
    }
    CHECK(comem_flag_wait(IS_LOCKED, 1) == 0);
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, locks, NULL) == 0);
    CHECK(comem_flag_wait(WAITS, 1) == 0);
    usleep(50000); /* By then it sleeps; if it does not, the test shows less. */
    CHECK(pthread_cancel(thread) == 0);
    CHECK(comem_flag_set(MAY_GO, 1) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(has_lock);
}

enum { OWN = 6, SIGNALLED, COUNTED, MEETS = 20, HAS_OWN = 30, PAGES = 40, ROUNDS = 60 };

static volatile char *counters;
static volatile int rounds;

static void *works(void *unused) {
    (void)unused;
    CHECK(comem_lock(OWN) == 0);
    CHECK(comem_flag_set(HAS_OWN + (uint64_t)comem_node(), 1) == 0);
    CHECK(comem_cond_wait(SIGNALLED, OWN) == 0);
    CHECK(comem_unlock(OWN) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(comem_lock(COUNTED) == 0);
        for (int page = 0; page < PAGES; page++) counters[page * PAGE]++;
        CHECK(comem_unlock(COUNTED) == 0);
        rounds++;
    }
    for (;;) pthread_testcancel();
    return NULL;
}

/* So does one that is cancelled while it waits for a condition; and then neither faults nor locks are cancellation
 * points. */
static void cancelled_at_work(void) {
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, works, NULL) == 0);
    /* It waits once it has let go of its lock. */
    CHECK(comem_flag_wait(HAS_OWN + (uint64_t)comem_node(), 1) == 0);
    CHECK(comem_lock(OWN) == 0);
    CHECK(comem_unlock(OWN) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(comem_cond_broadcast(SIGNALLED) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(rounds == ROUNDS);
    CHECK(comem_flag_set(MEETS + (uint64_t)comem_node(), 1) == 0);
    for (uint64_t node = 0; node < (uint64_t)comem_nodes(); node++) CHECK(comem_flag_wait(MEETS + node, 1) == 0);
    CHECK(comem_lock(COUNTED) == 0);
    for (int page = 0; page < PAGES; page++) CHECK(counters[page * PAGE] == (char)(ROUNDS * comem_nodes()));
    CHECK(comem_unlock(COUNTED) == 0);
}

/* Copies are given up although the program has locked their pages into memory. */
static void locked(volatile char *shared) {
    for (unsigned round = 1; round < 4; round++) {
        if (comem_node() == 0) {
            shared[0] = (char)round;
            CHECK(comem_flag_set(WROTE, round) == 0);
            CHECK(comem_flag_wait(HAS_READ, round) == 0);
        } else {
            CHECK(comem_flag_wait(WROTE, round) == 0);
            CHECK(shared[0] == (char)round);
            (void)mlock((void *)shared, 2 * PAGE);
            CHECK(comem_flag_set(HAS_READ, round) == 0);
        }
    }
}

int main(void) {
    if (comem_start() != 0) return 1;
    comem_region_options on_0 = {.home = COMEM_HOME_ON};
    volatile char *shared = comem_alloc_all(2 * PAGE, &on_0);
    counters = comem_alloc_all(PAGES * PAGE, NULL);
    CHECK(shared != NULL && counters != NULL);
    beyond_the_end();
    cancelled();
    cancelled_at_work();
    locked(shared);
    int node = comem_node();
    CHECK(comem_finish() == 0);
    if (node == 0 && !failures) printf("survives: ok\n");
    return failures != 0;
}
