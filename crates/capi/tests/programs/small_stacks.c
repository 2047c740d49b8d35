/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * small_stacks: a thread of the program's own with the least stack that the system allows, which has never called
 * Comem, reads and writes pages that the other node wrote, and ends. Nothing below its stack may change. On two nodes
 * of two threads; under the engine that the job names.
 */
#include <comem.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGES = 500, WORDS = 512, BELOW = 128 << 10 };

static long *shared;
static long sum;

static void *reader(void *unused) {
    for (int page = 0; page < PAGES; page++) {
        sum += shared[page * WORDS];
        shared[page * WORDS + 1] = sum;
    }
    return unused;
}

static void all_meet(void *unused) {
    (void)unused;
    comem_barrier();
}

int main(void) {
    size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    pthread_attr_t attributes;
    pthread_t thread;
    char *memory;
    int changed = 0;
    if (comem_start() != 0) return 1;
    if (least < 16384) least = 16384;
    least = (least + 4095) / 4096 * 4096;
    memory = aligned_alloc(4096, BELOW + least);
    shared = comem_alloc_all(PAGES * WORDS * sizeof *shared, NULL);
    if (comem_node() == 1) {
        for (int page = 0; page < PAGES; page++) shared[page * WORDS] = page;
    }
    comem_parallel(all_meet, NULL);
    memset(memory, 7, BELOW + least);
    if (comem_node() == 0) {
        pthread_attr_init(&attributes);
        if (pthread_attr_setstack(&attributes, memory + BELOW, least) != 0) return 2;
        /* Twice: the second thread takes the place that the first has left. */
        for (int round = 0; round < 2; round++) {
            if (pthread_create(&thread, &attributes, reader, NULL) != 0) return 3;
            pthread_join(thread, NULL);
        }
        for (int at = 0; at < BELOW; at++) changed += memory[at] != 7;
        if (changed > 0) printf("small_stacks: %d bytes below the stack have changed\n", changed);
    }
    comem_parallel(all_meet, NULL);
    if (shared[(PAGES - 1) * WORDS + 1] != 2 * (PAGES - 1L) * PAGES / 2) changed++;
    comem_parallel(all_meet, NULL);
    if (changed == 0 && comem_node() == 0) puts("small_stacks: ok");
    return comem_finish() != 0 || changed > 0;
}
