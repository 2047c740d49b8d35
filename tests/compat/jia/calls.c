/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every call of jia.h, with its result checked on every host.
 */
#include "../check.h"
#include <jia.h>
#include <string.h>
#include <unistd.h>

#define PAGES 12
#define WORDS 1024

/* In the other file. */
extern int pid_of_the_other_file(void);
extern int hosts_of_the_other_file(void);

/* Every host writes its share of each page, and then reads the others'. */
static void use(unsigned long address, const char *name) {
    int *word = (int *)address;
    int i;
    CHECK(address != 0);
    CHECK(address % 4096 == 0);
    jia_barrier();
    for (i = jiapid; i < PAGES * WORDS; i += jiahosts) {
        CHECK(word[i] == 0);
        word[i] = i ^ (int)strlen(name);
    }
    jia_barrier();
    for (i = 0; i < PAGES * WORDS; i++) CHECK(word[i] == (i ^ (int)strlen(name)));
    jia_barrier();
}

static void allocations(void) {
    int blocks[] = {4096, 3 * 4096, 5000}, parts[] = {8192, 0, 1}, rounds[] = {0, 4096};
    size_t size = PAGES * WORDS * sizeof(int);
    int last = jiahosts - 1;
    unsigned long address = jia_alloc(size);
    use(address, "jia_alloc");
    jia_free((void *)address);
    use(jia_alloc1(size), "jia_alloc1");
    use(jia_alloc2(size, 4096), "jia_alloc2");
    use(jia_alloc2p(size, last), "jia_alloc2p");
    use(jia_alloc3(size, 5000, last), "jia_alloc3");
    use(jia_alloc4(size, blocks, 3, last), "jia_alloc4");
    use(jia_alloc4(size, rounds, 2, last), "jia_alloc4 with a round of nothing");
    use(jia_alloc_array(size, parts, jiahosts < 3 ? jiahosts : 3), "jia_alloc_array");
    use(jia_alloc_random(size), "jia_alloc_random");
    /* What was 2 GiB and more did not fit an int. Only a page at either end is used. */
    {
        char *large = (char *)jia_alloc3((size_t)5 << 30, (size_t)1 << 30, 0);
        jia_barrier();
        if (jiapid == last) large[((size_t)5 << 30) - 1] = 7;
        jia_barrier();
        CHECK(large[((size_t)5 << 30) - 1] == 7);
    }
}

/* A counter under each of more locks than JIAJIA had. */
static void locks(void) {
    int *counter = (int *)jia_alloc3(200 * sizeof(int), 4096, 0);
    int round, lock;
    for (round = 0; round < 3; round++) {
        for (lock = 0; lock < 200; lock += 25) {
            jia_lock(1000 + lock);
            counter[lock] += jiapid + 1;
            jia_unlock(1000 + lock);
        }
    }
    jia_barrier();
    for (lock = 0; lock < 200; lock += 25) CHECK(counter[lock] == 3 * jiahosts * (jiahosts + 1) / 2);
    jia_barrier();
}

/* A baton goes round: each host waits for its variable, and sets the next one's. The last round is without waiting,
 * since the variables stay set until they are reset. */
static void conditions(void) {
    int *baton = (int *)jia_alloc(sizeof(int));
    int next = (jiapid + 1) % jiahosts, round;
    for (round = 1; round <= 3; round++) {
        if (jiapid == 0 && round == 1) jia_setcv(70000);
        jia_waitcv(70000 + jiapid);
        jia_resetcv(70000 + jiapid);
        jia_lock(5);
        CHECK(*baton == (round - 1) * jiahosts + jiapid);
        ++*baton;
        jia_unlock(5);
        jia_setcv(70000 + next);
    }
    jia_barrier();
    CHECK(*baton == 3 * jiahosts);
    jia_waitcv(70000);
    jia_waitcv(70000);
    jia_wait();
}

/* On one host nothing that synchronises waits, and nothing has to be paired. */
static void alone(void) {
    if (jiahosts > 1) return;
    jia_lock(9);
    jia_lock(9);
    jia_unlock(9);
    jia_unlock(9);
    jia_unlock(9);
    jia_resetcv(1);
    jia_waitcv(1);
}

static void messages(void) {
    enum { LONG = 100000 };
    int next = (jiapid + 1) % jiahosts, before = (jiapid + jiahosts - 1) % jiahosts, i;
    int number, *numbers = malloc(LONG * sizeof(int));
    CHECK(numbers != NULL);
    /* Tags choose; within a tag, the order of sending holds. */
    for (i = 0; i < 10; i++) {
        number = 100 * jiapid + i;
        jia_send((char *)&number, sizeof number, next, i % 2);
    }
    for (i = 1; i < 10; i += 2) {
        CHECK(jia_recv((char *)&number, sizeof number, before, 1) == (int)sizeof number);
        CHECK(number == 100 * before + i);
    }
    for (i = 0; i < 10; i += 2) {
        CHECK(jia_recv((char *)&number, sizeof number, MSG_PROC_ALL, MSG_TAG_ALL) == (int)sizeof number);
        CHECK(number == 100 * before + i);
    }
    /* Long and empty ones. */
    for (i = 0; i < LONG; i++) numbers[i] = i * (jiapid + 1);
    jia_send((char *)numbers, LONG * sizeof(int), next, 7);
    jia_send(NULL, 0, next, 8);
    CHECK(jia_recv((char *)numbers, LONG * sizeof(int), before, 7) == LONG * (int)sizeof(int));
    for (i = 0; i < LONG; i++) CHECK(numbers[i] == i * (before + 1));
    CHECK(jia_recv((char *)numbers, 4, before, 8) == 0);
    /* Each host broadcasts in turn, while messages of its own are under way. */
    for (i = 0; i < jiahosts; i++) {
        jia_send((char *)&i, sizeof i, next, 9);
        number = jiapid == i ? 31 * i + 1 : -1;
        jia_bcast((char *)&number, sizeof number, i);
        CHECK(number == 31 * i + 1);
    }
    for (i = 0; i < jiahosts; i++) {
        jia_recv((char *)&number, sizeof number, before, 9);
        CHECK(number == i);
    }
    free(numbers);
    jia_wait();
}

static void reductions(void) {
    int i[2] = {jiapid + 1, -jiapid}, whole[2] = {-1, -1};
    float f[1] = {0.5f * (float)jiapid}, real[1] = {-1};
    double d[1] = {0.25 * jiapid}, wide[1] = {-1};
    int root = jiahosts - 1;
    jia_reduce((char *)i, (char *)whole, 2, SUM_INT, root);
    if (jiapid == root) CHECK(whole[0] == jiahosts * (jiahosts + 1) / 2 && whole[1] == -(jiahosts - 1) * jiahosts / 2);
    if (jiapid != root) CHECK(whole[0] == -1);
    jia_reduce((char *)i, (char *)whole, 2, MAX_INT, root);
    if (jiapid == root) CHECK(whole[0] == jiahosts && whole[1] == 0);
    jia_reduce((char *)i, (char *)whole, 2, MIN_INT, root);
    if (jiapid == root) CHECK(whole[0] == 1 && whole[1] == -(jiahosts - 1));
    jia_reduce((char *)f, (char *)real, 1, SUM_FLOAT, root);
    if (jiapid == root) CHECK(real[0] == 0.25f * (float)(jiahosts * (jiahosts - 1)));
    jia_reduce((char *)f, (char *)real, 1, MAX_FLOAT, root);
    if (jiapid == root) CHECK(real[0] == 0.5f * (float)(jiahosts - 1));
    jia_reduce((char *)f, (char *)real, 1, MIN_FLOAT, root);
    if (jiapid == root) CHECK(real[0] == 0);
    jia_reduce((char *)d, (char *)wide, 1, SUM_DOUBLE, root);
    if (jiapid == root) CHECK(wide[0] == 0.125 * (jiahosts * (jiahosts - 1)));
    jia_reduce((char *)d, (char *)wide, 1, MAX_DOUBLE, root);
    if (jiapid == root) CHECK(wide[0] == 0.25 * (jiahosts - 1));
    jia_reduce((char *)d, (char *)wide, 1, MIN_DOUBLE, root);
    if (jiapid == root) CHECK(wide[0] == 0);
}

/* All hosts' parts of a loop of a thousand steps, one behind the other. */
static int parts_follow_each_other(void) {
    int *edges = (int *)jia_alloc(2 * jiahosts * sizeof(int)), begin = 0, end = 999, host, mine;
    jia_divtask(&begin, &end);
    mine = end - begin + 1;
    edges[2 * jiapid] = begin;
    edges[2 * jiapid + 1] = end;
    jia_barrier();
    CHECK(edges[0] == 0);
    for (host = 1; host < jiahosts; host++) CHECK(edges[2 * host] == edges[2 * host - 1] + 1);
    CHECK(edges[2 * jiahosts - 1] == 999);
    jia_barrier();
    return mine;
}

/* So much work that a clock of the processor's time sees it. */
static void compute(int units) {
    volatile double x = 1;
    int i;
    for (i = 0; i < units * 2000; i++) x = x * 1.0000001 + 1e-9;
}

static void load_balancing(void) {
    int mine = parts_follow_each_other(), fresh;
    CHECK(mine >= 1000 / jiahosts);
    jia_config(LOADBAL, ON);
    fresh = parts_follow_each_other();
    /* Host 0 takes twenty times as long for a step as the others do: by and by it gets less. */
    compute(jiapid == 0 ? 20 * fresh : fresh);
    jia_loadcheck();
    mine = parts_follow_each_other();
    if (jiapid == 0 && jiahosts > 1) CHECK(mine < fresh / 2);
    jia_config(LOADBAL, OFF);
    jia_config(HMIG, ON);
    jia_config(ADWD, ON);
    jia_config(BROADCAST, ON);
    jia_config(WVEC, ON);
    CHECK(parts_follow_each_other() >= 1000 / jiahosts);
}

static void clocks(void) {
    double before = jia_clock(), after;
    unsigned long nanoseconds = jia_current_time();
    unsigned int start = jia_startstat(), stop;
    usleep(20000);
    after = jia_clock();
    stop = jia_stopstat();
    CHECK(after - before >= 0.02 && after - before < 60);
    CHECK(stop - start >= 20000);
    CHECK(jia_current_time() - nanoseconds >= 20000000);
}

int main(int argc, char **argv) {
    jia_init(argc, argv);
    CHECK(jiapid >= 0 && jiapid < jiahosts);
    CHECK(pid_of_the_other_file() == jiapid);
    CHECK(hosts_of_the_other_file() == jiahosts);
    allocations();
    locks();
    conditions();
    alone();
    messages();
    reductions();
    load_balancing();
    clocks();
    if (jiapid == 0) printf("ok\n");
    jia_exit();
    return 0;
}
