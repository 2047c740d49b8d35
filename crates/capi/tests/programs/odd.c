/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * odd: prints its second argument on each node, one after another; or unmaps memory that is shared, or ends with its
 * first thread before its last, or calls Comem where a thread is taken down, or closes descriptors that it has not
 * opened, or prints an argument and the sum of all nodes, or writes what another node has made.
 */
#include <comem.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 20, PAGE = 4096 };

static pthread_t first;
static pthread_key_t key;

static void refused(int code, const char *sentence, void *unused) {
    (void)unused;
    printf("%d %s\n", code, sentence);
}

static void lock_late(void *unused) {
    (void)unused;
    comem_lock(1);
}

static void *end_with_key(void *unused) {
    comem_lock(1);
    comem_unlock(1);
    pthread_setspecific(key, &key);
    return unused;
}

static void *outlive(void *unused) {
    (void)unused;
    if (pthread_join(first, NULL) == 0) puts("the last");
    return NULL;
}

int main(int argc, char **argv) {
    if (comem_start() != 0 || argc < 2) return 1;
    if (!strcmp(argv[1], "args")) {
        for (int node = 0; node < comem_nodes(); node++) {
            if (comem_node() == node) {
                printf("%s\n", argv[2]);
                fflush(stdout);
            }
            comem_barrier();
        }
        return comem_finish() != 0;
    }
    if (!strcmp(argv[1], "sum")) {
        int64_t sum = comem_node() + 1;
        comem_reduce_i64(COMEM_SUM, &sum, 1);
        printf("%s %d\n", argv[2], (int)sum);
        fflush(stdout);
        return comem_finish() != 0;
    }
    if (!strcmp(argv[1], "write")) {
        comem_region_options on_0 = {.home = COMEM_HOME_ON, .label = "field"};
        char *shared = comem_alloc_all(BYTES, &on_0);
        if (comem_node() == 0) memset(shared, 'x', BYTES);
        comem_barrier();
        int ends[2];
        if (comem_node() == 1 && pipe(ends) == 0) printf("%d\n", (int)write(ends[1], shared + PAGE, 100));
        fflush(stdout);
        return comem_finish() != 0;
    }
    if (!strcmp(argv[1], "unmap")) {
        comem_region_options on_0 = {.home = COMEM_HOME_ON, .label = "field"};
        volatile char *shared = comem_alloc_all(BYTES, &on_0);
        for (char round = 1; round < 4; round++) {
            if (comem_node() == 0) {
                for (int at = 0; at < BYTES; at += PAGE) shared[at] = round;
            }
            comem_barrier();
            for (int at = 0; at < BYTES; at += PAGE) {
                if (shared[at] != round) return 1;
            }
            if (comem_node() == 1 && round == 2) munmap((char *)shared + BYTES / 2, 2 * PAGE);
            comem_barrier();
        }
        return comem_finish() != 0;
    }
    if (!strcmp(argv[1], "leave")) {
        pthread_t last;
        first = pthread_self();
        if (comem_finish() != 0 || pthread_create(&last, NULL, outlive, NULL) != 0) return 1;
        pthread_exit(NULL);
    }
    if (!strcmp(argv[1], "null")) {
        /* Kept in a variable, which each node has for itself. */
        volatile char *volatile shared = comem_node() == 0 ? comem_alloc(BYTES) : NULL;
        comem_barrier();
        shared[comem_node()] = 1;
        comem_barrier();
    }
    if (!strcmp(argv[1], "cut")) {
        /* As if a function without a prototype had given it: the lower half, with its sign. The label tells which of
         * two. */
        int *other = comem_alloc_all(5000, NULL);
        int *field = comem_alloc_all(5000, NULL);
        comem_label(other, "other");
        comem_label(field, "field");
        comem_barrier();
        if (comem_node() == 0) {
            int *volatile cut = (int *)(intptr_t)(int)(intptr_t)(field + 3);
            printf("%d", *cut);
        }
        comem_barrier();
    }
    if (!strcmp(argv[1], "wild")) {
        int *volatile wild = (int *)(intptr_t)0x12345678;
        comem_barrier();
        printf("%d", *wild);
    }
    if (!strcmp(argv[1], "late")) {
        pthread_t thread;
        comem_set_error_handler(refused, NULL);
        if (pthread_key_create(&key, lock_late) != 0) return 1;
        if (pthread_create(&thread, NULL, end_with_key, NULL) != 0) return 1;
        pthread_join(thread, NULL);
        return comem_finish() != 0;
    }
    comem_barrier();
    if (comem_node() == 1) {
        for (int descriptor = 3; descriptor < 1024; descriptor++) close(descriptor);
    }
    /* Shared memory carries barriers without descriptors: the loop must outlast the node timeout of a slow machine. */
    const time_t end = time(NULL) + 120;
    int64_t over = 0;
    while (over == 0) {
        over = comem_node() == 0 && time(NULL) >= end;
        comem_reduce_i64(COMEM_SUM, &over, 1);
    }
    return comem_finish() != 0;
}
