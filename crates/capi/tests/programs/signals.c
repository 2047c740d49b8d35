/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * signals: a program that takes its signals itself, by sigwait or in a handler, while Comem's own threads are about.
 * Each comes in the thread that the program has left it to.
 */
#define _GNU_SOURCE 1
#include <comem.h>

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t main_thread;
static volatile sig_atomic_t handled, elsewhere;

static void handler(int signal) {
    (void)signal;
    handled = 1;
    if (!pthread_equal(pthread_self(), main_thread)) elsewhere = 1;
}

/* Whether a signal waits for a thread that takes it. */
static int is_pending(int signal) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal);
}

/* A signal that all threads of the program block stays pending until it is asked for. */
static void taken_by_sigwait(int signal) {
    sigset_t set, before;
    int taken = 0;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    kill(getpid(), signal);
    CHECK(is_pending(signal));
    CHECK(sigwait(&set, &taken) == 0 && taken == signal);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A handler runs in a thread of the program's, once that one lets it. */
static void taken_by_handler(int signal) {
    sigset_t set, before;
    struct sigaction action = {.sa_handler = handler}, old;
    handled = 0;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigaction(signal, &action, &old);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    kill(getpid(), signal);
    CHECK(is_pending(signal) && !handled);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(handled && !elsewhere);
    sigaction(signal, &old, NULL);
}

/* Threads that run the program's code have the mask of the one that made them. */
static sigset_t expected;
static void compare_masks(void *unused) {
    (void)unused;
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    for (int signal = 1; signal < NSIG; signal++) CHECK(sigismember(&mine, signal) == sigismember(&expected, signal));
}

int main(void) {
    if (comem_start() != 0) return 1;
    main_thread = pthread_self();
    const int signals[] = {SIGALRM, SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM, SIGRTMIN};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        taken_by_sigwait(signals[i]);
        taken_by_handler(signals[i]);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &expected);
    compare_masks(NULL);
    comem_parallel(compare_masks, NULL);
    int node = comem_node();
    CHECK(comem_finish() == 0);
    if (node == 0 && !failures) printf("signals: ok\n");
    return failures != 0;
}
