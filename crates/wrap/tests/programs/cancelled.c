/* Cancels a thread whose call waits for shared memory: one more than the node has places for (`-t`), which waits for a
 * place first, and then for a pipe that nobody writes to. */
#define _GNU_SOURCE
#include <comem.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static char *shared;
static int ends[2];

static void *reader(void *unused) {
    (void)unused;
    return read(ends[0], shared, 100) < 0 ? shared : NULL;
}

int main(void) {
    if (comem_start() != 0) return 1;
    shared = comem_alloc_all(4096, NULL);
    if (comem_node() == 1) {
        pthread_t thread;
        void *result = NULL;
        if (pipe(ends) != 0 || pthread_create(&thread, NULL, reader, NULL) != 0) return 9;
        usleep(100000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result == PTHREAD_CANCELED) puts("ok");
        fflush(stdout);
    }
    comem_barrier();
    return comem_finish() != 0;
}
