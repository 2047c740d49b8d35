/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Processes that wait for what is distributed without any synchronisation: they look at the variable again and again,
 * or wait in sigpause or pause for the signal that comes with it.
 */
#include "../check.h"
#include <signal.h>
#include <string.h>
#include <tmk.h>
#include <unistd.h>

#define ROUNDS 12

static volatile int question;
static volatile int answers[TMK_NPROCS];
static char *volatile text;
static struct {
    char bytes[100003];
} large;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal_number) {
    (void)signal_number;
    alarms++;
}

/* Waits until the variable has the value, in one of three ways. */
static void await(const volatile int *variable, int value, int way) {
    while (*variable != value) {
        if (way == 1) sigpause(SIGIO);
        if (way == 2) pause();
    }
}

int main(int argc, char **argv) {
    unsigned me, i;
    int round;
    Tmk_startup(argc, argv);
    me = Tmk_proc_id;
    for (round = 1; round <= ROUNDS; round++) {
        if (me == 0) {
            memset(large.bytes, round, sizeof large.bytes);
            Tmk_distribute(&large, sizeof large);
            question = round;
            Tmk_distribute((const void *)&question, sizeof question);
            for (i = 1; i < Tmk_nprocs; i++) await(&answers[i], -round, round % 3);
        } else {
            await(&question, round, round % 3);
            CHECK(Tmk_proc_id == me); /* also while what stands around it is stored */
            CHECK(large.bytes[0] == round && large.bytes[sizeof large.bytes - 1] == round);
            answers[me] = -round;
            Tmk_distribute((const void *)&answers[me], sizeof answers[me]);
        }
    }
    /* A pointer, to what a barrier makes known; and a signal of the program's own reaches it. */
    if (me == 0) {
        text = Tmk_malloc(20);
        strcpy(text, "shared");
        Tmk_distribute((const void *)&text, sizeof text);
    }
    while (text == NULL) sigpause(SIGIO);
    Tmk_barrier(0);
    CHECK(!strcmp(text, "shared"));
    signal(SIGALRM, on_alarm);
    alarm(1);
    while (alarms == 0) pause();
    Tmk_barrier(0);
    if (me == 0) printf("ok\n");
    Tmk_exit(0);
}
