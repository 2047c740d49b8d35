/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every call of quarks.h, with its result checked on every node.
 */
#include "../check.h"
#include <Quarks.h>

#define ACCOUNTS 40
#define WORDS 5000

/* Set by the master's Qk_create_region(), and by Qk_fork() on the other nodes. */
static struct bank {
    Id barrier;
    Id locks[ACCOUNTS];
    int account[ACCOUNTS];
    int nodes_seen[64];
    int second_round;
} *bank;
static long *numbers;
static int nodes;

/* Every node moves money between accounts, under both accounts' locks. */
static void transfer(void) {
    unsigned random = 12345u * (unsigned)Qknodeid;
    int i;
    for (i = 0; i < 60; i++) {
        int from, to, low, high;
        random = random * 1103515245u + 12345u;
        from = (int)(random >> 16) % ACCOUNTS;
        to = (from + 1 + (int)(random >> 8) % (ACCOUNTS - 1)) % ACCOUNTS;
        if (from < 0 || to < 0 || from == to) continue;
        low = from < to ? from : to;
        high = from < to ? to : from;
        Qk_acquire(bank->locks[low]);
        Qk_acquire(bank->locks[high]);
        bank->account[from] -= i;
        bank->account[to] += i;
        Qk_release(bank->locks[high]);
        Qk_release(bank->locks[low]);
    }
}

/* What every node does, the master too. */
static void work(void) {
    int i, sum = 0, low = (int)(Qknodeid - 1) * WORDS / nodes, high = (int)Qknodeid * WORDS / nodes;
    CHECK(bank != NULL && numbers != NULL);
    CHECK(Qkmaster == (Qknodeid == 1) && Qkchild == !Qkmaster);
    CHECK(Qk_open_region(2) == (Address)numbers);
    bank->nodes_seen[Qknodeid - 1] = 1;
    for (i = low; i < high; i++) numbers[i] += i;
    Qk_wait_barrier(bank->barrier, nodes);
    for (i = 0; i < WORDS; i++) CHECK(numbers[i] == 7 + i);
    for (i = 0; i < nodes; i++) CHECK(bank->nodes_seen[i] == 1);
    transfer();
    Qk_wait_barrier(bank->barrier, nodes);
    for (i = 0; i < ACCOUNTS; i++) sum += bank->account[i];
    CHECK(sum == 100 * ACCOUNTS);
}

/* A node makes a region and a lock of its own, and leaves their names to the master. */
static struct {
    Id region, lock;
} *left;

/* Used for two regions, of which it has the one that was created last. */
static int *latest;

static void leave_something(void) {
    unsigned long address;
    Id lock = Qk_newlock();
    int i;
    CHECK(latest != NULL && latest[0] == 4);
    for (i = 0; i < ACCOUNTS; i++) CHECK(lock != bank->locks[i]);
    Qk_create_region(100 + Qknodeid, 3 * 4096, &address);
    CHECK(address != 0);
    ((int *)address)[3000] = (int)Qknodeid;
    left[Qknodeid].region = 100 + Qknodeid;
    left[Qknodeid].lock = lock;
    bank->second_round += Qknodeid == 2;
}

int main(int argc, char **argv) {
    unsigned long start, again;
    int i;
    nodes = argc > 1 ? atoi(argv[1]) : 1;
    Qk_initialize();
    if (Qkchild) return 1;
    CHECK(Qkmaster && Qknodeid == 1 && Qknumnodes >= nodes);
    start = Qk_current_time();

    Qk_create_region(1, sizeof *bank, (unsigned long *)&bank);
    Qk_create_region(2, WORDS * sizeof *numbers, (unsigned long *)&numbers);
    Qk_create_region(3, 4096, (unsigned long *)&left);
    Qk_create_region(1, 4096, &again);
    CHECK(again == 0);
    CHECK(Qk_open_region(17) == 0);
    bank->barrier = Qk_newbarrier();
    for (i = 0; i < ACCOUNTS; i++) {
        bank->locks[i] = Qk_newlock();
        bank->account[i] = 100;
    }
    for (i = 0; i < WORDS; i++) numbers[i] = 7;
    for (i = 1; i < nodes; i++) CHECK(Qk_fork(work) == i + 1);
    work();
    Qk_wait_for_threads();

    Qk_create_region(5, 4096, (unsigned long *)&latest);
    latest[0] = 5;
    Qk_create_region(4, 4096, (unsigned long *)&latest);
    latest[0] = 4;

    /* A second round, on nodes that are free again; what they leave is seen. */
    for (i = 1; i < nodes; i++) CHECK(Qk_fork(leave_something) == i + 1);
    Qk_wait_for_threads();
    CHECK(bank->second_round == (nodes > 1));
    for (i = 2; i <= nodes; i++) {
        int *region = (int *)Qk_open_region(left[i].region);
        CHECK(region != NULL && region[3000] == i);
        Qk_acquire(left[i].lock);
        Qk_release(left[i].lock);
        Qk_close_region(left[i].region);
    }
    Qk_destroy_region(2);
    CHECK(Qk_current_time() - start < 60000);
    printf("ok\n");
    fflush(stdout);
    Qk_shutdown(0);
    Qk_shutdown(1);
    return 1;
}
