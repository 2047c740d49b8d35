/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * step.h: counts the instructions that a function executes, by stepping through it in a child process.
 */
#ifndef STEP_H
#define STEP_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP_ACCESSES = 200 };

/* Where the count begins and ends; never inlined, so that the address is hit. */
__attribute__((noinline)) static void step_begin(void) {
    __asm__ volatile("");
}
__attribute__((noinline)) static void step_end(void) {
    __asm__ volatile("" : : : "memory");
}

static void step_fail(const char *what) {
    perror(what);
    exit(1);
}

/* The child: runs the function twice, so that the first run has brought everything into place. */
static void step_child(void (*function)(void)) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) {
        printf("SKIP: ptrace is not allowed here\n");
        _exit(0);
    }
    raise(SIGSTOP);
    function();
    step_begin();
    function();
    step_end();
    _exit(0);
}

/* Instructions that the second run of `function` executes. */
static long step_count(void (*function)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) step_fail("fork");
    if (child == 0) step_child(function);
    long count = -1;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        struct user_regs_struct registers;
        if (ptrace(PTRACE_GETREGS, child, 0, &registers) != 0) step_fail("PTRACE_GETREGS");
        if (registers.rip == (uintptr_t)step_begin) count = 0;
        if (registers.rip == (uintptr_t)step_end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return count;
        }
        if (count >= 0) count++;
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0) != 0) step_fail("PTRACE_SINGLESTEP");
    }
    return -1;
}

/* Compares a loop over shared elements with the same over plain ones; gives 1 when it costs too much. */
static int step_compare(const char *what, void (*shared)(void), void (*plain)(void), double most) {
    long with = step_count(shared), without = step_count(plain);
    if (with < 0 || without < 0) {
        printf("SKIP: %s: ptrace does not work here\n", what);
        return 0;
    }
    double more = (double)(with - without) / (double)STEP_ACCESSES;
    printf("%s: %.2f instructions more than the plain access (at most %.0f)\n", what, more, most);
    return more > most + 0.1;
}

#endif /* STEP_H */
