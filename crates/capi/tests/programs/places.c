/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * places: threads that end with something open, on two nodes of two threads: what was sent to their places, and ranges
 * that others want.
 */
#include <comem.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 50, ANSWERS = 3000, BYTES = 100 };

static comem_array_i64 array;

static void quiet(int code, const char *sentence, void *unused) {
    (void)code;
    (void)sentence;
    (void)unused;
}

/* Meets a message that is too long for its buffer, and waits until there is room for its own; others come meanwhile. */
static void *busy(void *unused) {
    char small[BYTES / 2];
    (void)unused;
    if (comem_receive(NULL, small, sizeof small) != COMEM_E_TOO_SMALL) puts("places: a message of 100 bytes fits 50");
    for (int i = 0; i < ANSWERS; i++) comem_post(0, small, 8);
    return NULL;
}

/* Comes to the place that the other has left. */
static void *next(void *count) {
    unsigned char message[BYTES];
    for (int i = 0; i < MESSAGES; i++) {
        if (comem_receive(NULL, message, sizeof message) == BYTES && message[0] == 7) ++*(int *)count;
    }
    return NULL;
}

static void *open_range(void *unused) {
    int64_t *part = comem_write_begin_i64(array, 0, 8);
    (void)unused;
    part[0] = 42;
    comem_flag_set(1, 1);
    /* The others may have asked for it by now, or ask later. */
    usleep(100000);
    return NULL;
}

static void run(void *(*work)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) != 0) puts("places: no thread");
    pthread_join(thread, NULL);
}

int main(void) {
    comem_object_options options;
    unsigned char message[BYTES];
    int count = 0;
    if (comem_start() != 0) return 1;
    comem_set_error_handler(quiet, NULL);
    memset(&options, 0, sizeof options);
    options.engine = "msi";
    array = comem_new_i64(64, &options);
    memset(message, 7, sizeof message);
    if (comem_node() == 0) {
        for (int i = 0; i < MESSAGES; i++) comem_post(3, message, sizeof message);
        /* By then the other's answers fill this thread's inbox; if they do not, the test shows less. */
        usleep(100000);
        for (int i = 0; i < ANSWERS; i++) comem_receive(NULL, message, sizeof message);
        run(open_range, NULL);
    } else {
        run(busy, NULL);
        run(next, &count);
        comem_flag_wait(1, 1);
        if (count != MESSAGES || comem_read_i64(array, 0) != 42) return 1;
        puts("places: ok");
    }
    return comem_finish() != 0;
}
