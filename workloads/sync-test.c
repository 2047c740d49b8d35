/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * sync-test: every means of synchronisation at work on shared pages: locks, condition variables, semaphores,
 * reader-writer locks, flags and reductions. Each part would end with a wrong number if what it tests did not hold.
 *
 * With --publish, semaphores and flags alone order what threads write for each other. That is right under release
 * consistency, and not promised under scope consistency.
 */
#include "kernel.h"

enum {
    COUNTER_LOCK = 1,
    QUEUE_LOCK,
    QUEUE_CHANGED,
    PAIR_LOCK,
    PERMITS,
    PERMITS_LOCK,
    CHAIN_FLAG = 1000,
    RING = 100000,
    PERMIT_COUNT = 2
};

static int64_t rounds = 100;
static int publish;

static struct {
    int64_t counter;                   /* under COUNTER_LOCK */
    int64_t filled, taken, sum, ended; /* the queue, under QUEUE_LOCK: items are the numbers up to `filled` */
    int64_t first, second;             /* alike, under PAIR_LOCK */
    int64_t inside, crowded;           /* threads with a permit, under PERMITS_LOCK */
    int64_t handed, chained;           /* ordered by semaphores, and by flags */
    int64_t wrong;                     /* under COUNTER_LOCK */
} *shared;

static void count_wrong(int64_t many) {
    if (many == 0) return;
    comem_lock(COUNTER_LOCK);
    shared->wrong += many;
    comem_unlock(COUNTER_LOCK);
}

static void count_under_a_lock(void) {
    for (int64_t i = 0; i < rounds; i++) {
        comem_lock(COUNTER_LOCK);
        shared->counter++;
        comem_unlock(COUNTER_LOCK);
    }
}

/* Thread 0 fills a queue with numbers, and all threads take them out; who finds it empty waits. */
static void fill_and_take(void) {
    for (int64_t i = 0; comem_thread() == 0 && i <= rounds * comem_threads(); i++) {
        comem_lock(QUEUE_LOCK);
        if (i < rounds * comem_threads()) {
            shared->filled++;
            comem_cond_signal(QUEUE_CHANGED);
        } else {
            shared->ended = 1;
            comem_cond_broadcast(QUEUE_CHANGED);
        }
        comem_unlock(QUEUE_LOCK);
    }
    for (int more = 1; more;) {
        comem_lock(QUEUE_LOCK);
        while (shared->taken == shared->filled && !shared->ended) comem_cond_wait(QUEUE_CHANGED, QUEUE_LOCK);
        more = shared->taken < shared->filled;
        if (more) shared->sum += ++shared->taken;
        comem_unlock(QUEUE_LOCK);
    }
}

/* Writers keep two numbers alike, and readers look. */
static void read_and_write_pairs(void) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < rounds; i++) {
        if ((i + comem_thread()) % 4 == 0) {
            comem_wrlock(PAIR_LOCK);
            shared->first++;
            shared->second++;
        } else {
            comem_rdlock(PAIR_LOCK);
            wrong += shared->first != shared->second;
        }
        comem_rwunlock(PAIR_LOCK);
    }
    count_wrong(wrong);
}

/* A semaphore lets two threads in at a time. */
static void share_permits(void) {
    for (int i = 0; comem_thread() == 0 && i < PERMIT_COUNT; i++) comem_sem_post(PERMITS);
    for (int64_t i = 0; i < rounds; i++) {
        comem_sem_wait(PERMITS);
        comem_lock(PERMITS_LOCK);
        shared->crowded += ++shared->inside > PERMIT_COUNT;
        comem_unlock(PERMITS_LOCK);
        comem_lock(PERMITS_LOCK);
        shared->inside--;
        comem_unlock(PERMITS_LOCK);
        comem_sem_post(PERMITS);
    }
}

/* A token goes round: who has it writes, and posts to the next thread. */
static void hand_round(void) {
    const uint64_t self = (uint64_t)comem_thread(), next = (self + 1) % (uint64_t)comem_threads();
    if (self == 0) comem_sem_post(RING);
    for (int64_t i = 0; i < rounds; i++) {
        comem_sem_wait(RING + self);
        if (publish) shared->handed++;
        comem_sem_post(RING + next);
    }
}

/* Each thread waits for the flag to say that the one before has written. */
static void chain_flags(void) {
    const int64_t threads = comem_threads(), self = comem_thread();
    for (int64_t i = 0; i < rounds; i++) {
        const int64_t turn = i * threads + self;
        comem_flag_wait(CHAIN_FLAG, (uint64_t)turn);
        if (publish) shared->chained++;
        comem_flag_set(CHAIN_FLAG, (uint64_t)turn + 1);
    }
}

static void reduce(void) {
    const int64_t threads = comem_threads(), self = comem_thread();
    int64_t wrong = 0;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t sums[3] = {self, 1, i}, extremes[2] = {self + i, -self};
        double largest = (double)self;
        comem_reduce_i64(COMEM_SUM, sums, 3);
        comem_reduce_i64(COMEM_MIN, extremes, 2);
        comem_reduce_f64(COMEM_MAX, &largest, 1);
        wrong += sums[0] != threads * (threads - 1) / 2 || sums[1] != threads || sums[2] != i * threads;
        wrong += extremes[0] != i || extremes[1] != 1 - threads || largest < (double)(threads - 1);
    }
    count_wrong(wrong);
}

static void work(void *unused) {
    (void)unused;
    comem_barrier();
    double start = now();
    count_under_a_lock();
    fill_and_take();
    read_and_write_pairs();
    share_permits();
    hand_round();
    chain_flags();
    comem_rendezvous();
    reduce();
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* Counts what is not as it must be, with a line for each. */
static int64_t wrong_numbers(void) {
    const int64_t threads = comem_threads(), all = rounds * threads;
    int64_t writes = 0, wrong = 0;
    for (int64_t i = 0; i < all; i++) writes += (i % rounds + i / rounds) % 4 == 0;
    const struct {
        const char *what;
        int64_t found, expected;
    } numbers[] = {
        {"increments under a lock", shared->counter, all},
        {"items taken from the queue", shared->taken, all},
        {"sum of the items", shared->sum, all * (all + 1) / 2},
        {"writes under a reader-writer lock", shared->first, writes},
        {"times that too many had a permit", shared->crowded, 0},
        {"hand-overs by semaphore", shared->handed, publish ? all : 0},
        {"hand-overs by flag", shared->chained, publish ? all : 0},
        {"wrong pairs and reductions", shared->wrong, 0},
    };
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        if (numbers[i].found == numbers[i].expected) continue;
        wrong++;
        printf("%s: %" PRId64 ", not %" PRId64 "\n", numbers[i].what, numbers[i].found, numbers[i].expected);
    }
    return wrong;
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--rounds", &rounds, NULL, NULL, "how often to do each thing"},
        {"--publish", NULL, NULL, &publish, "order writes by semaphores and flags alone"},
    };
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    shared = comem_alloc_all(sizeof *shared, NULL);
    if (!shared) refuse("sync-test", "no shared memory");
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int64_t wrong = wrong_numbers();
    printf("sync-test rounds=%" PRId64 " publish=%d", rounds, publish);
    return kernel_finish((uint64_t)shared->sum, wrong == 0);
}
