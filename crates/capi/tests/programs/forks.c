/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * forks: children made by fork call Comem, each in another way. Every one must end with status 2, and the job must not
 * notice.
 */
#define _GNU_SOURCE 1
#include <comem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOCK = 9, SEMAPHORE = 3, CALLS = 13 };

static comem_array_i64 array;

static int told;
static void handler(int code, const char *sentence, void *argument) {
    (void)argument;
    told += code == COMEM_E_MISUSE && strstr(sentence, "made by fork") != NULL;
}

/* One call; with a handler it comes back, and with nothing. */
static int call(int which) {
    int64_t sum = 1;
    switch (which) {
    case 0: return comem_lock(LOCK);
    case 1: return comem_unlock(LOCK);
    case 2: return comem_barrier();
    case 3: return comem_sem_post(SEMAPHORE);
    case 4: return comem_sem_wait(SEMAPHORE);
    case 5: return comem_flag_set(4, 1);
    case 6: return comem_alloc(100) == NULL ? COMEM_E_MISUSE : 0;
    case 7: return comem_cond_signal(5);
    case 8: return comem_rdlock(6);
    case 9: return comem_reduce_i64(COMEM_SUM, &sum, 1);
    case 10: return comem_prefetch(&array, 1, 0);
    case 11: return comem_finish();
    default: return comem_read_begin_i64(array, 0, 1) == NULL ? COMEM_E_MISUSE : 0;
    }
}

/* The status of a child that makes a call. */
static int child(int which, int with_handler) {
    int status = -1;
    pid_t made = fork();
    if (made == 0) {
        if (with_handler) comem_set_error_handler(handler, NULL);
        int code = call(which);
        _exit(with_handler && code == COMEM_E_MISUSE && told == 1 ? 2 : 1);
    }
    waitpid(made, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* A child may ask who it is, starts nothing, and ends by itself. */
static int harmless(void) {
    int status = -1, node = comem_node();
    pid_t made = fork();
    if (made == 0) {
        if (comem_node() != node || comem_start() != COMEM_E_MISUSE) _exit(1);
        if (!strstr(comem_last_error(), "made by fork")) _exit(1);
        exit(0);
    }
    waitpid(made, &status, 0);
    return status;
}

int main(void) {
    int wrong = 0;
    if (comem_start() != 0) return 1;
    array = comem_new_i64(10, NULL);
    printf("printed by the parent alone\n"); /* not flushed: no child may let it out */
    comem_lock(LOCK);
    comem_unlock(LOCK);
    comem_barrier();
    if (comem_node() == comem_nodes() - 1) {
        for (int which = 0; which < CALLS; which++) {
            int plain = child(which, 0), handled = child(which, 1);
            if (plain == 2 && handled == 2) continue;
            printf("call %d: status %d, with a handler %d\n", which, plain, handled);
            wrong++;
        }
        fflush(stdout);
        if (harmless() != 0) wrong++, printf("a child that does no harm failed\n");
    }
    comem_barrier();
    comem_lock(LOCK);
    comem_write_i64(array, 0, comem_read_i64(array, 0) + 1);
    comem_unlock(LOCK);
    comem_barrier();
    if (comem_read_i64(array, 0) != comem_threads()) wrong++;
    if (comem_node() == 0) printf("forks: ended\n");
    return comem_finish() != 0 || wrong;
}
