/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every call of tmk.h, with its result checked on every process.
 */
#include "../check.h"
#include <Tmk.h>
#include <string.h>

#define WORDS 3000

struct shared {
    int sum;
    int turn;
    int items, taken, enough;
    int array[WORDS];
};

/* Private variables of one name in each process: the values are distributed. */
static struct shared *shared;
static struct {
    char text[40];
    double number;
} settings = {"as it was", 1.0};
int *rows[200];
static int late;

extern unsigned process_of_the_other_file(void);
extern int *pointer_of_the_other_file;

static void allocate_and_distribute(void) {
    if (Tmk_proc_id == 0) {
        int i;
        shared = Tmk_malloc(sizeof *shared);
        CHECK(shared != NULL);
        for (i = 0; i < WORDS; i++) shared->array[i] = i + 1;
        Tmk_distribute(&shared, sizeof shared);
        strcpy(settings.text, "as process 0 says");
        settings.number = 2.5;
        Tmk_distribute((char *)&settings, sizeof settings);
        strcpy(settings.text, "changed afterwards");
        for (i = 0; i < 200; i++) {
            rows[i] = Tmk_malloc((unsigned)(i + 1) * sizeof(int));
            Tmk_distribute(&rows[i], sizeof rows[i]);
        }
        pointer_of_the_other_file = Tmk_sbrk(100);
        CHECK((unsigned long)pointer_of_the_other_file % Tmk_page_size == 0);
        *pointer_of_the_other_file = 77;
        Tmk_distribute(&pointer_of_the_other_file, sizeof pointer_of_the_other_file);
    }
    Tmk_barrier(0);
    CHECK(shared != NULL && settings.number == 2.5);
    CHECK(!strcmp(settings.text, Tmk_proc_id == 0 ? "changed afterwards" : "as process 0 says"));
    CHECK(*pointer_of_the_other_file == 77);
}

/* Programs distribute more than a variable has, and what says who is who may stand behind it. It stays each process's
 * own. */
static void distribute_too_much(void) {
    unsigned me = Tmk_proc_id;
    char *one = (char *)&Tmk_proc_id, *other = (char *)&Tmk_nprocs, *low = one < other ? one : other;
    Tmk_barrier(0);
    if (me == Tmk_nprocs - 1) Tmk_distribute(low, (int)(one - low) + (int)(other - low) + (int)sizeof(unsigned));
    Tmk_barrier(0);
    CHECK(Tmk_proc_id == me);
}

/* Each process's share of a sum, put together under a lock. */
static void sum_up(void) {
    unsigned i, from = Tmk_proc_id * WORDS / Tmk_nprocs, to = (Tmk_proc_id + 1) * WORDS / Tmk_nprocs;
    int mine = 0;
    for (i = from; i < to; i++) mine += shared->array[i];
    Tmk_lock_acquire(70001);
    shared->sum += mine;
    Tmk_lock_release(70001);
    Tmk_barrier(31);
    CHECK(shared->sum == WORDS * (WORDS + 1) / 2);
    for (i = Tmk_proc_id; i < 200; i += Tmk_nprocs) rows[i][i] = (int)i;
    Tmk_barrier(1);
    for (i = 0; i < 200; i++) CHECK(rows[i][i] == (int)i);
}

/* A value that is distributed before a lock is released is there once the lock is acquired; and whoever distributes
 * last wins. */
static void distribute_under_a_lock(void) {
    int turn;
    for (;;) {
        Tmk_lock_acquire(3);
        turn = shared->turn;
        if (turn == (int)Tmk_proc_id) {
            CHECK(late == turn);
            late = turn + 1;
            Tmk_distribute(&late, sizeof late);
            shared->turn = turn + 1;
        }
        Tmk_lock_release(3);
        if (turn >= (int)Tmk_nprocs) break;
    }
    CHECK(late == (int)Tmk_nprocs);
}

/* Process 0 makes items, and the others take them. */
static void condition_variables(void) {
    int i, rest;
    Tmk_barrier(2);
    Tmk_lock_acquire(4);
    if (Tmk_proc_id == 0) {
        for (i = 0; i < 20; i++) {
            shared->items++;
            Tmk_lock_cond_signal(4, 0);
            Tmk_lock_release(4);
            Tmk_lock_acquire(4);
        }
        shared->enough = 1;
        Tmk_lock_cond_broadcast(4, 0);
    } else {
        while (shared->items > 0 || !shared->enough) {
            if (shared->items > 0) {
                shared->items--;
                shared->taken++;
            } else {
                Tmk_lock_cond_wait(4, 0);
            }
        }
    }
    Tmk_lock_release(4);
    Tmk_barrier(2);
    rest = Tmk_nprocs == 1 ? 20 : 0;
    CHECK(shared->items == rest && shared->taken == 20 - rest);
    Tmk_barrier(2);
    if (Tmk_proc_id == Tmk_nprocs - 1) Tmk_free(shared);
}

int main(int argc, char **argv) {
    Tmk_startup(argc, argv);
    CHECK(Tmk_proc_id < Tmk_nprocs && process_of_the_other_file() == Tmk_proc_id);
    allocate_and_distribute();
    distribute_too_much();
    sum_up();
    distribute_under_a_lock();
    condition_variables();
    if (Tmk_proc_id == 0) printf("ok\n");
    Tmk_exit(0);
}
