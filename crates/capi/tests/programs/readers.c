/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * readers: reader-writer locks of the plain-threads build (-DCOMEM_PTHREADS), with four threads. What a thread finds
 * depends on who waits at that moment, so it looks into the lock until they do.
 */
#include <comem.h>

#include "check.h"

#include <sched.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 300, AGAIN = 1, TOGETHER, OFTEN, TRIED };

static int pairs[2], readers_in, tried, misuses;

/* Returns when so many threads wait to read and to write. */
static void await(uint64_t lock, int to_read, int to_write) {
    struct comem_named_ *named = comem_by_name_(COMEM_A_RWLOCK_, lock);
    int wait = 1;
    while (wait) {
        pthread_mutex_lock(&named->mutex);
        wait = named->readers_waiting != to_read || named->writers_waiting != to_write;
        pthread_mutex_unlock(&named->mutex);
        sched_yield();
    }
}

/* A thread that reads already enters again though a writer waits. */
static void check_again(void) {
    if (comem_thread() == 0) CHECK(comem_rdlock(AGAIN) == 0);
    comem_barrier();
    if (comem_thread() == 0) {
        await(AGAIN, 0, 1);
        CHECK(comem_rdlock(AGAIN) == 0);
        CHECK(comem_rwunlock(AGAIN) == 0);
        CHECK(pairs[0] == 0);
        CHECK(comem_rwunlock(AGAIN) == 0);
    } else if (comem_thread() == 1) {
        CHECK(comem_wrlock(AGAIN) == 0);
        pairs[0] = 1;
        CHECK(comem_rwunlock(AGAIN) == 0);
    }
    comem_barrier();
}

/* After a writer all readers that wait go, before the next writer. */
static void check_together(void) {
    const int self = comem_thread();
    if (self == 0) CHECK(comem_wrlock(TOGETHER) == 0);
    comem_barrier();
    if (self == 0) {
        await(TOGETHER, 2, 1);
        CHECK(comem_rwunlock(TOGETHER) == 0);
    } else if (self == 1) {
        CHECK(comem_wrlock(TOGETHER) == 0);
        CHECK(__atomic_load_n(&readers_in, __ATOMIC_RELAXED) == 2);
        CHECK(comem_rwunlock(TOGETHER) == 0);
    } else {
        CHECK(comem_rdlock(TOGETHER) == 0);
        __atomic_fetch_add(&readers_in, 1, __ATOMIC_RELAXED);
        CHECK(comem_rwunlock(TOGETHER) == 0);
    }
    comem_barrier();
}

/* Who tries gets the lock where it may be had at once: beside readers to read, unless a writer waits. */
static void check_tries(void) {
    const int self = comem_thread();
    if (self == 0) CHECK(comem_tryrdlock(TRIED) == 1 && comem_tryrdlock(TRIED) == 1 && comem_trywrlock(TRIED) == 0);
    comem_barrier();
    if (self == 1) CHECK(comem_trywrlock(TRIED) == 0 && comem_tryrdlock(TRIED) == 1 && comem_rwunlock(TRIED) == 0);
    comem_barrier();
    if (self == 1) CHECK(comem_wrlock(TRIED) == 0 && comem_rwunlock(TRIED) == 0);
    if (self == 2) {
        await(TRIED, 0, 1);
        CHECK(comem_tryrdlock(TRIED) == 0);
        __atomic_store_n(&tried, 1, __ATOMIC_RELEASE);
    }
    if (self == 0) {
        while (!__atomic_load_n(&tried, __ATOMIC_ACQUIRE)) sched_yield();
        CHECK(comem_rwunlock(TRIED) == 0 && comem_rwunlock(TRIED) == 0);
    }
    comem_barrier();
    if (self == 3) {
        CHECK(comem_trywrlock(TRIED) == 1 && comem_trywrlock(TRIED) == 0 && comem_tryrdlock(TRIED) == 0);
        CHECK(comem_rwunlock(TRIED) == 0);
    }
    comem_barrier();
}

static void check_often(void) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(comem_wrlock(OFTEN) == 0);
        pairs[0]++;
        pairs[1]++;
        CHECK(comem_rwunlock(OFTEN) == 0);
        CHECK(comem_rdlock(OFTEN) == 0 && comem_rdlock(OFTEN) == 0);
        CHECK(pairs[0] == pairs[1]);
        CHECK(comem_rwunlock(OFTEN) == 0 && comem_rwunlock(OFTEN) == 0);
    }
}

static void work(void *unused) {
    (void)unused;
    check_again();
    check_together();
    check_tries();
    if (comem_thread() == 0) pairs[0] = 0;
    comem_barrier();
    check_often();
}

static void handler(int code, const char *sentence, void *argument) {
    (void)sentence;
    *(int *)argument += code == COMEM_E_MISUSE;
}

/* As under Comem: nobody waits for itself, or releases what others hold. */
static void *misuse(void *unused) {
    (void)unused;
    CHECK(comem_rwunlock(AGAIN) == COMEM_E_MISUSE && misuses == 1);
    return NULL;
}
static void check_misuse(void) {
    pthread_t other;
    comem_set_error_handler(handler, &misuses);
    CHECK(comem_rdlock(AGAIN) == 0);
    pthread_create(&other, NULL, misuse, NULL);
    pthread_join(other, NULL);
    CHECK(comem_wrlock(AGAIN) == COMEM_E_MISUSE && misuses == 2);
    CHECK(comem_rwunlock(AGAIN) == 0 && comem_wrlock(AGAIN) == 0);
    CHECK(comem_rdlock(AGAIN) == COMEM_E_MISUSE && comem_wrlock(AGAIN) == COMEM_E_MISUSE && misuses == 4);
    CHECK(comem_rwunlock(AGAIN) == 0 && comem_rwunlock(AGAIN) == COMEM_E_MISUSE && misuses == 5);
}

int main(void) {
    CHECK(comem_start() == 0 && comem_threads() == THREADS);
    CHECK(comem_parallel(work, NULL) == 0);
    CHECK(pairs[0] == THREADS * ROUNDS && pairs[1] == THREADS * ROUNDS);
    check_misuse();
    CHECK(comem_finish() == 0);
    if (failures == 0) printf("readers: ok\n");
    return failures != 0;
}
