// Threads that share memory: atomics of every width, locks made of them, flags that are spun on, signals.
#define _GNU_SOURCE
#include "../fake.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 10000 };
static struct shared {
    _Atomic(uint8_t) a8;
    _Atomic(uint16_t) a16;
    _Atomic(uint32_t) a32;
    _Atomic(uint64_t) a64, bits, highest;
    _Atomic(int) lock;
    int64_t under_lock[20];
    int neighbours[16]; // one a thread, in one line
    volatile int turn;
    double total;
    _Atomic(double) real;
    void *_Atomic head;
} *s;
static pthread_barrier_t barrier;

static __attribute__((noinline)) void locked(struct shared *p) {
    int free = 0;
    while (!atomic_compare_exchange_weak(&p->lock, &free, 1)) free = 0, sched_yield();
    for (int i = 0; i < 20; i++) p->under_lock[i] += i;
    p->total += 0.5;
    atomic_store(&p->lock, 0);
}

static void *work(void *number) {
    int me = (int)(intptr_t)number;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&s->a8, 1);
        atomic_fetch_add(&s->a16, 3);
        atomic_fetch_sub(&s->a32, 5);
        atomic_fetch_add_explicit(&s->a64, 1ull << 33, memory_order_relaxed);
        atomic_fetch_xor(&s->bits, 1ull << (i + me) % 64);
        uint64_t was = atomic_load(&s->highest), mine = (uint64_t)i * THREADS + me;
        while (was < mine && !atomic_compare_exchange_strong(&s->highest, &was, mine)) {
        }
        s->neighbours[me] += i;
        if (i % 8 == 0) locked(s);
        if (i % 64 == 0) {
            double old = atomic_load(&s->real);
            while (!atomic_compare_exchange_weak(&s->real, &old, old + 1.0)) {
            }
        }
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 50; i++) { // plain flags
        while (s->turn % THREADS != me) sched_yield();
        s->turn++;
    }
    return 0;
}

static volatile sig_atomic_t handled;
static int *counter;
static void handler(int number) {
    (void)number;
    for (int i = 0; i < 16; i++) counter[16 + i]++;
    handled++;
}

int main(void) {
    s = shared_alloc(sizeof *s);
    memset(s, 0, sizeof *s);
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%u %u %u %lu %lx %lu\n", s->a8, s->a16, s->a32, s->a64 >> 33, s->bits, s->highest);
    for (int i = 0; i < 20; i++) printf("%ld ", s->under_lock[i]);
    for (int i = 0; i < THREADS; i++) printf("%d ", s->neighbours[i]);
    printf("%d %g %g\n", s->turn, s->total, atomic_load(&s->real));

    counter = shared_alloc(64 * sizeof *counter);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    signal(SIGUSR2, handler);
    for (int i = 0; i < 2000; i++) {
        counter[i % 16]++;
        if (i % 10 == 0) raise(i % 20 ? SIGUSR1 : SIGUSR2);
    }
    int64_t sum = 0;
    for (int i = 0; i < 32; i++) sum = sum * 3 + counter[i];
    printf("%d %ld\n", handled, sum);
    return 0;
}
