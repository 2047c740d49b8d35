/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * interface: calls every function of comem.h and checks what it does, on one node with several threads. Also the proof
 * that header and library agree: each function is linked, called with telling arguments, and its effect looked at.
 */
#include <comem.h>

#include "check.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS = 1000, ROUNDS = 300, LOCK = 7, FLAG = 9 };

/* An element wider than a word, whose halves must always agree. */
typedef struct wide {
    int64_t one, two, three;
} wide;

static comem_array wides;
static comem_array_i32 ints;
static comem_array_i64 counter, buffered;

/* Every typed accessor: what is written is read, at both ends of the array, and neighbours keep their values. */
#define TYPED(name, type)                                                                                            \
    static void typed_##name(void) {                                                                                 \
        comem_array_##name array = comem_new_##name(ELEMENTS, NULL);                                                 \
        CHECK(array.any.length == ELEMENTS);                                                                         \
        for (int i = 0; i < ELEMENTS; i++) CHECK(comem_read_##name(array, (uint64_t)i) == (type)0);                  \
        for (int i = 0; i < ELEMENTS; i++) comem_write_##name(array, (uint64_t)i, (type)(i % 100 + 1));              \
        for (int i = 0; i < ELEMENTS; i++) CHECK(comem_read_##name(array, (uint64_t)i) == (type)(i % 100 + 1));      \
        const type *read = comem_read_begin_##name(array, 10, 20);                                                   \
        for (int i = 0; i < 10; i++) CHECK(read[i] == (type)(i + 11));                                               \
        CHECK(comem_read_end_##name(array, 10, 20) == 0);                                                            \
        type *write = comem_write_begin_##name(array, ELEMENTS - 5, ELEMENTS);                                       \
        for (int i = 0; i < 5; i++) write[i] = (type)(100 + i);                                                      \
        CHECK(comem_write_end_##name(array, ELEMENTS - 5, ELEMENTS) == 0);                                           \
        CHECK(comem_read_##name(array, ELEMENTS - 1) == (type)104);                                                  \
        CHECK(comem_read_##name(array, ELEMENTS - 6) == (type)((ELEMENTS - 6) % 100 + 1));                           \
    }
COMEM_EACH_TYPE(TYPED)

static void check_identity(void) {
    CHECK(comem_node() == 0 && comem_nodes() == 1);
    CHECK(comem_threads() == comem_nodes() * comem_threads_per_node());
    CHECK(comem_thread() >= 0 && comem_thread() < comem_threads());
    CHECK(strcmp(comem_version(), COMEM_VERSION_STRING) == 0);
}

static void check_splits(void) {
    uint64_t low, high;
    for (uint64_t total = 0; total < 50; total += 7) {
        CHECK(comem_split(total, &low, &high) == 0);
        int64_t sum = (int64_t)(high - low);
        CHECK(comem_reduce_i64(COMEM_SUM, &sum, 1) == 0);
        CHECK(sum == (int64_t)total);
        CHECK(comem_split_weighted(total, &low, &high) == 0);
        sum = (int64_t)(high - low);
        comem_reduce_i64(COMEM_SUM, &sum, 1);
        CHECK(sum == (int64_t)total && high <= total);
    }
}

static void check_reductions(void) {
    const int64_t threads = comem_threads(), self = comem_thread();
    int64_t sum[3] = {1, self, -self};
    comem_reduce_i64(COMEM_SUM, sum, 3);
    CHECK(sum[0] == threads && sum[1] == threads * (threads - 1) / 2 && sum[2] == -sum[1]);
    int64_t least = 10 + self, most = 10 + self;
    comem_reduce_i64(COMEM_MIN, &least, 1);
    comem_reduce_i64(COMEM_MAX, &most, 1);
    CHECK(least == 10 && most == 10 + threads - 1);
    double half[2] = {0.5, (double)self};
    comem_reduce_f64(COMEM_SUM, half, 1);
    comem_reduce_f64(COMEM_MAX, half + 1, 1);
    CHECK(half[0] == 0.5 * (double)threads && half[1] == (double)(threads - 1));
    double low = (double)-self;
    comem_reduce_f64(COMEM_MIN, &low, 1);
    CHECK(low == (double)(1 - threads));
}

/* Threads count up under a lock, element-wise and through a range, and exchange wide elements without tearing. */
static void check_sharing(void) {
    const uint64_t self = (uint64_t)comem_thread(), threads = (uint64_t)comem_threads();
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 == 0) {
            comem_lock(LOCK);
        } else {
            while (comem_trylock(LOCK) == 0) continue;
        }
        comem_write_i64(counter, 0, comem_read_i64(counter, 0) + 1);
        int64_t *range = comem_write_begin_i64(counter, 1, 2);
        range[0] += 2;
        comem_write_end_i64(counter, 1, 2);
        comem_unlock(LOCK);
        wide mine = {(int64_t)self, i, (int64_t)self + i}, seen;
        CHECK(comem_write(wides, (uint64_t)i % 4, &mine) == 0);
        CHECK(comem_read(wides, (uint64_t)(i + 1) % 4, &seen) == 0);
        CHECK(seen.three == seen.one + seen.two);
        comem_write_i32(ints, (uint64_t)i * threads + self, i);
    }
    comem_barrier();
    CHECK(comem_read_i64(counter, 0) == (int64_t)threads * ROUNDS);
    CHECK(comem_read_i64(counter, 1) == (int64_t)threads * ROUNDS * 2);
    for (uint64_t i = 0; i < ROUNDS * threads; i++) CHECK(comem_read_i32(ints, i) == (int32_t)(i / threads));
}

static void check_flags_and_messages(void) {
    const int self = comem_thread(), threads = comem_threads();
    CHECK(comem_flag_wait(FLAG + (uint64_t)self, 0) == 0);
    comem_flag_set(FLAG + (uint64_t)self, 5);
    CHECK(comem_flag_wait(FLAG + (uint64_t)((self + 1) % threads), 5) == 0);
    int64_t number = 1000 + self, got = 0;
    int from = -1;
    CHECK(comem_post((self + 1) % threads, &number, sizeof number) == 0);
    CHECK(comem_receive(&from, &got, 4) == COMEM_E_TOO_SMALL);
    CHECK(comem_receive(&from, &got, sizeof got) == (int64_t)sizeof got);
    CHECK(got == 1000 + (self + threads - 1) % threads && from == 0);
    CHECK(comem_tryreceive(NULL, &got, sizeof got) == COMEM_E_EMPTY);
    CHECK(comem_post(self, NULL, 0) == 0 && comem_receive(NULL, NULL, 0) == 0);
}

/* All threads pass as many things through a small buffer as they put in: a lock and two conditions. */
static void check_conditions(void) {
    enum { IN_BUFFER = 0, ROOM = 20, FILLED = 21, BUFFER = 8, THINGS = 40 };
    for (int i = 0; i < THINGS; i++) {
        comem_lock(BUFFER);
        while (comem_read_i64(buffered, IN_BUFFER) == 1) CHECK(comem_cond_wait(ROOM, BUFFER) == 0);
        comem_write_i64(buffered, IN_BUFFER, comem_read_i64(buffered, IN_BUFFER) + 1);
        CHECK(comem_cond_signal(FILLED) == 0);
        comem_unlock(BUFFER);
        comem_lock(BUFFER);
        while (comem_read_i64(buffered, IN_BUFFER) == 0) CHECK(comem_cond_wait(FILLED, BUFFER) == 0);
        comem_write_i64(buffered, IN_BUFFER, comem_read_i64(buffered, IN_BUFFER) - 1);
        CHECK((i % 2 ? comem_cond_broadcast(ROOM) : comem_cond_signal(ROOM)) == 0);
        comem_unlock(BUFFER);
    }
    comem_barrier();
    CHECK(comem_read_i64(buffered, IN_BUFFER) == 0);
}

/* A semaphore of one is a lock; a semaphore and a lock may have the same name. */
static void check_semaphores_and_readers(void) {
    enum { ONE = LOCK, DONE = 30, SHARED = LOCK, FIRST = 1 };
    const int64_t threads = comem_threads();
    if (comem_thread() == 0) CHECK(comem_sem_trywait(ONE) == 0 && comem_sem_post(ONE) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(comem_sem_wait(ONE) == 0);
        comem_write_i64(buffered, FIRST, comem_read_i64(buffered, FIRST) + 1);
        CHECK(comem_sem_post(ONE) == 0);
        CHECK(comem_wrlock(SHARED) == 0);
        comem_write_i64(buffered, 2, comem_read_i64(buffered, 2) + 1);
        comem_write_i64(buffered, 3, comem_read_i64(buffered, 3) + 1);
        CHECK(comem_rwunlock(SHARED) == 0);
        CHECK(comem_rdlock(SHARED) == 0 && comem_rdlock(SHARED) == 0);
        CHECK(comem_read_i64(buffered, 2) == comem_read_i64(buffered, 3));
        CHECK(comem_rwunlock(SHARED) == 0 && comem_rwunlock(SHARED) == 0);
    }
    comem_barrier();
    CHECK(comem_read_i64(buffered, FIRST) == threads * ROUNDS && comem_read_i64(buffered, 2) == threads * ROUNDS);
    CHECK(comem_sem_post(DONE) == 0);
    if (comem_thread() == 0) CHECK(comem_wrlock(SHARED) == 0);
    comem_barrier();
    CHECK(comem_tryrdlock(SHARED) == 0 && comem_trywrlock(SHARED) == 0);
    comem_barrier();
    if (comem_thread() == 0) CHECK(comem_rwunlock(SHARED) == 0);
    /* The writer's end comes to the manager a moment later. */
    while (comem_tryrdlock(SHARED) == 0) continue;
    comem_barrier();
    CHECK(comem_trywrlock(SHARED) == 0 && comem_rwunlock(SHARED) == 0);
    comem_barrier();
    CHECK(comem_sem_trywait(DONE) == 1);
}

static void work(void *argument) {
    CHECK(*(int *)argument == 42);
    check_identity();
    check_reductions();
    check_splits();
    check_sharing();
    check_flags_and_messages();
    check_conditions();
    check_semaphores_and_readers();
}

/* A thread that the program made itself takes a free place when it first touches shared memory. */
static void *own_thread(void *unused) {
    (void)unused;
    comem_write_i32(ints, 0, 77);
    CHECK(comem_read_i32(ints, 0) == 77);
    CHECK(comem_thread() > 0);
    return NULL;
}

/* ---- errors, with a handler ------------------------------------------------------------------------------------- */

static int reports, last_code;

static void handler(int code, const char *sentence, void *argument) {
    CHECK(argument == &reports);
    CHECK(strncmp(sentence, "comem: node 0 (host ", 20) == 0 && strchr(sentence, ';') != NULL);
    CHECK(strcmp(sentence, comem_last_error()) == 0);
    CHECK(comem_error_string(code)[0] != '\0');
    last_code = code;
    reports++;
}

/* One report with this code since the last call. */
static int reported(int code) {
    int once = reports == 1 && last_code == code;
    reports = 0;
    return once;
}

static void check_errors(void) {
    comem_array_i32 none, few = comem_new_i32(10, NULL);
    comem_object_options options = {0};
    comem_region_options region = {0};
    comem_array array;
    uint64_t low;
    memset(&none, 0, sizeof none);
    comem_set_error_handler(handler, &reports);
    CHECK(comem_read_i32(few, 10) == 0 && reported(COMEM_E_INDEX));
    comem_write_i32(few, UINT64_MAX, 1);
    CHECK(reported(COMEM_E_INDEX));
    CHECK(comem_read_begin_i32(few, 3, 11) == NULL && reported(COMEM_E_INDEX));
    CHECK(comem_write_begin_i32(few, 5, 4) == NULL && reported(COMEM_E_INDEX));
    CHECK(comem_read_i32(none, 0) == 0 && reported(COMEM_E_ARRAY));
    CHECK(comem_read(few.any, 10, &low) == COMEM_E_INDEX && reported(COMEM_E_INDEX));
    CHECK(comem_write(few.any, 1, NULL) == COMEM_E_ARGUMENT && reported(COMEM_E_ARGUMENT));
    CHECK(comem_unlock(12345) == COMEM_E_MISUSE && reported(COMEM_E_MISUSE));
    CHECK(comem_rwunlock(12345) == COMEM_E_MISUSE && reported(COMEM_E_MISUSE));
    CHECK(comem_cond_wait(1, 12345) == COMEM_E_MISUSE && reported(COMEM_E_MISUSE));
    CHECK(comem_wrlock(12345) == 0 && comem_rdlock(12345) == COMEM_E_MISUSE && reported(COMEM_E_MISUSE));
    CHECK(comem_wrlock(12345) == COMEM_E_MISUSE && reported(COMEM_E_MISUSE) && comem_rwunlock(12345) == 0);
    CHECK(comem_split(5, &low, NULL) == COMEM_E_ARGUMENT && reported(COMEM_E_ARGUMENT));
    CHECK(comem_post(comem_threads(), &low, 1) < 0 && reported(COMEM_E_MISUSE));
    CHECK(comem_reduce_i64(99, NULL, 0) == COMEM_E_ARGUMENT && reported(COMEM_E_ARGUMENT));
    CHECK(comem_parallel(NULL, NULL) == COMEM_E_ARGUMENT && reported(COMEM_E_ARGUMENT));
    CHECK(comem_new_f64(UINT64_MAX / 2, NULL).any.length == 0 && reported(COMEM_E_ARRAY));
    CHECK(comem_start() == COMEM_E_MISUSE && reports == 0);
    /* comem_create() gives its errors to the caller alone. */
    CHECK(comem_create(&array, 8, UINT64_MAX, NULL) == COMEM_E_ARRAY && array.length == 0 && reports == 0);
    CHECK(comem_create(&array, 0, 1, NULL) == COMEM_E_ARRAY && reports == 0);
    options.engine = "telepathy";
    CHECK(comem_create(&array, 4, 10, &options) == COMEM_E_ARRAY);
    CHECK(strstr(comem_last_error(), "owner, broadcast, msi and direct") != NULL);
    region.engine = "telepathy";
    CHECK(comem_alloc_with(10, &region) == NULL && reported(COMEM_E_ARGUMENT));
    CHECK(strstr(comem_last_error(), "hlrc, scope, lrc, multicast, msi and hardware") != NULL);
    options.engine = NULL;
    options.home = 9;
    CHECK(comem_create(&array, 4, 10, &options) == COMEM_E_ARGUMENT);
    comem_set_error_handler(NULL, NULL);
    CHECK(comem_read_i32(few, 9) == 0);
}

int main(int argc, char **argv) {
    int answer = 42;
    pthread_t own;
    comem_object_options options = {0};
    CHECK(comem_start_args(&argc, argv) == 0);
    CHECK(argc == 2 && argv[2] == NULL && strcmp(argv[1], "mine") == 0);
#define CALL(name, type) typed_##name();
    COMEM_EACH_TYPE(CALL)
    options.label = "ints";
    options.unit_elements = 8;
    options.home = COMEM_HOME_CYCLIC;
    options.home_number = 2;
    ints = comem_new_i32((uint64_t)(ROUNDS * comem_threads()), &options);
    counter = comem_new_i64(2, NULL);
    buffered = comem_new_i64(4, NULL);
    options.home = COMEM_HOME_ON;
    options.home_number = 0;
    CHECK(comem_create(&wides, sizeof(wide), 4, &options) == 0 && wides.length == 4);
    CHECK(comem_parallel(work, &answer) == 0);
    CHECK(comem_threads() > 1);
    pthread_create(&own, NULL, own_thread, NULL);
    pthread_join(own, NULL);
    check_errors();
    CHECK(comem_finish() == 0);
    if (failures == 0) printf("interface: ok\n");
    return failures != 0;
}
