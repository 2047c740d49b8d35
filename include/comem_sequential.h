/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_sequential.h: comem.h on plain memory, for one thread, without Comem.
 *
 * Included by comem.h under -DCOMEM_SEQUENTIAL, never by programs. It answers "what would this program be without
 * Comem?": accessors are plain loads and stores without a check, synchronisation is nothing, and no library is
 * linked. There is nobody to exchange messages with, so comem_post() and its relatives are missing.
 */
#ifndef COMEM_SEQUENTIAL_H
#define COMEM_SEQUENTIAL_H

#include <stdio.h>
#include <stdlib.h>

static inline const char *comem_error_string(int code) {
    return code == COMEM_OK ? "no error" : "error";
}
static inline const char *comem_last_error(void) {
    return "";
}
static inline void comem_set_error_handler(comem_error_handler handler, void *argument) {
    (void)handler;
    (void)argument;
}
static inline int comem_start(void) {
    return 0;
}
static inline int comem_start_args(int *argc, char **argv) {
    (void)argc;
    (void)argv;
    return 0;
}
static inline int comem_unique_id(comem_id *id) {
    memset(id, 0, sizeof *id);
    return 0;
}
static inline int comem_start_attr(const comem_attr *attr) {
    if (attr && attr->processes > 1) return COMEM_E_START;
    return 0;
}
static inline int comem_finish(void) {
    return 0;
}
static inline void comem_abort(int status, const char *sentence) {
    fprintf(stderr, "%s\n", sentence);
    exit(status & 0xff ? status : 1);
}
static inline int comem_node(void) {
    return 0;
}
static inline int comem_nodes(void) {
    return 1;
}
static inline int comem_thread(void) {
    return 0;
}
static inline int comem_threads(void) {
    return 1;
}
static inline int comem_threads_per_node(void) {
    return 1;
}
static inline const char *comem_version(void) {
    return COMEM_VERSION_STRING;
}
static inline int comem_parallel(void (*function)(void *argument), void *argument) {
    function(argument);
    return 0;
}
static inline int comem_split(uint64_t total, uint64_t *low, uint64_t *high) {
    *low = 0;
    *high = total;
    return 0;
}
static inline int comem_split_weighted(uint64_t total, uint64_t *low, uint64_t *high) {
    return comem_split(total, low, high);
}
static inline int comem_barrier(void) {
    return 0;
}
static inline int comem_node_barrier(void) {
    return 0;
}
/* How far the loop has come that this source file is in, plus one; 0: it is in none. */
static inline uint64_t *comem_loop_(void) {
    static uint64_t at;
    return &at;
}
static inline int comem_begin_items_(void) {
    if (*comem_loop_() == 0) return 0;
    comem_abort(1, "comem: a dynamic loop within a dynamic loop");
    return COMEM_E_MISUSE;
}
static inline int comem_next_items_(uint64_t total, uint64_t chunk, uint64_t *low, uint64_t *high) {
    uint64_t *at = comem_loop_();
    *low = *at ? *at - 1 : 0;
    if (*low == total) {
        *at = 0;
        return 0;
    }
    *high = chunk && chunk < total - *low ? *low + chunk : total;
    *at = *high + 1;
    return 1;
}
static inline void comem_leave_items_(void) {
    *comem_loop_() = 0;
}
static inline int comem_for_dynamic(uint64_t total, uint64_t chunk,
                                    void (*body)(uint64_t low, uint64_t high, void *argument), void *argument) {
    uint64_t low, high;
    comem_begin_items_();
    while (comem_next_items_(total, chunk, &low, &high)) body(low, high, argument);
    return 0;
}
static inline int comem_lock(uint64_t lock) {
    (void)lock;
    return 0;
}
static inline int comem_trylock(uint64_t lock) {
    (void)lock;
    return 1;
}
static inline int comem_unlock(uint64_t lock) {
    (void)lock;
    return 0;
}
static inline int comem_flag_set(uint64_t flag, uint64_t value) {
    (void)flag;
    (void)value;
    return 0;
}
static inline int comem_flag_wait(uint64_t flag, uint64_t value) {
    (void)flag;
    (void)value;
    return 0;
}
static inline int comem_reduce_i64(int operation, int64_t *values, size_t count) {
    (void)operation;
    (void)values;
    (void)count;
    return 0;
}
static inline int comem_reduce_f64(int operation, double *values, size_t count) {
    (void)operation;
    (void)values;
    (void)count;
    return 0;
}

static inline int comem_rendezvous(void) {
    return 0;
}
static inline int comem_rdlock(uint64_t lock) {
    return comem_lock(lock);
}
static inline int comem_wrlock(uint64_t lock) {
    return comem_lock(lock);
}
static inline int comem_tryrdlock(uint64_t lock) {
    return comem_trylock(lock);
}
static inline int comem_trywrlock(uint64_t lock) {
    return comem_trylock(lock);
}
static inline int comem_rwunlock(uint64_t lock) {
    return comem_unlock(lock);
}
/* Nobody else could wake this thread, so a wait for a condition returns at once, as waits may. */
static inline int comem_cond_wait(uint64_t cond, uint64_t lock) {
    (void)cond;
    (void)lock;
    return 0;
}
static inline int comem_cond_signal(uint64_t cond) {
    (void)cond;
    return 0;
}
static inline int comem_cond_broadcast(uint64_t cond) {
    (void)cond;
    return 0;
}
/* Where a semaphore counts, for each source file by itself: that is enough for who looks whether there is one. */
static inline uint64_t *comem_sem_count_(uint64_t sem) {
    static struct comem_sem_counts_ {
        struct comem_sem_counts_ *next;
        uint64_t name, count;
    } *first;
    struct comem_sem_counts_ *at = first;
    while (at && at->name != sem) at = at->next;
    if (!at && (at = (struct comem_sem_counts_ *)calloc(1, sizeof *at)) != NULL) {
        at->name = sem;
        at->next = first;
        first = at;
    }
    if (!at) abort();
    return &at->count;
}
static inline int comem_sem_post(uint64_t sem) {
    ++*comem_sem_count_(sem);
    return 0;
}
static inline int comem_sem_trywait(uint64_t sem) {
    uint64_t *count = comem_sem_count_(sem);
    if (*count == 0) return 0;
    --*count;
    return 1;
}
/* Nobody else could post, so a wait returns even if there is none. */
static inline int comem_sem_wait(uint64_t sem) {
    (void)comem_sem_trywait(sem);
    return 0;
}

/* Zeroed memory from calloc(), aligned; the word before it remembers what calloc() gave. */
static inline void *comem_alloc_with(size_t bytes, const comem_region_options *options) {
    const size_t alignment = options && options->alignment > 64 ? options->alignment : 64;
    char *block = bytes > SIZE_MAX - 2 * alignment ? NULL : (char *)calloc(1, bytes + alignment + sizeof(void *));
    if (!block) {
        comem_abort(1, "no memory of that size");
        return NULL;
    }
    char *place = block + sizeof(void *);
    place += (alignment - (uintptr_t)place % alignment) % alignment;
    ((void **)(void *)place)[-1] = block;
    return place;
}
static inline void *comem_alloc(size_t bytes) {
    return comem_alloc_with(bytes, NULL);
}
static inline void *comem_alloc_all(size_t bytes, const comem_region_options *options) {
    return comem_alloc_with(bytes, options);
}
static inline int comem_free(void *p) {
    if (p) free(((void **)p)[-1]);
    return 0;
}
static inline int comem_label(void *p, const char *name) {
    (void)p;
    (void)name;
    return 0;
}
static inline int comem_freeze(const void *p) {
    (void)p;
    return 0;
}
static inline int comem_prefetch(const void *p, size_t bytes, int for_writing) {
    (void)p;
    (void)bytes;
    (void)for_writing;
    return 0;
}
static inline int comem_is_shared(const void *p) {
    (void)p;
    return 0;
}

/* The plain memory needs no object of its own; `object` holds the element size for the untyped accessors. */
static inline size_t comem_element_size_(comem_array array) {
    return (size_t)(uintptr_t)array.object;
}
static inline int comem_create(comem_array *array, size_t element_size, uint64_t length,
                               const comem_object_options *options) {
    (void)options;
    array->data = (unsigned char *)calloc(length ? (size_t)length : 1, element_size);
    array->access = NULL;
    array->length = array->data ? length : 0;
    array->object = (struct comem_object *)(uintptr_t)element_size;
    return array->data ? COMEM_OK : COMEM_E_ARRAY;
}
static inline int comem_read(comem_array array, uint64_t index, void *out) {
    memcpy(out, array.data + index * comem_element_size_(array), comem_element_size_(array));
    return 0;
}
static inline int comem_write(comem_array array, uint64_t index, const void *value) {
    memcpy(array.data + index * comem_element_size_(array), value, comem_element_size_(array));
    return 0;
}
static inline const void *comem_read_begin(comem_array array, uint64_t low, uint64_t high) {
    (void)high;
    return array.data + low * comem_element_size_(array);
}
static inline int comem_read_end(comem_array array, uint64_t low, uint64_t high) {
    (void)array;
    (void)low;
    (void)high;
    return 0;
}
static inline void *comem_write_begin(comem_array array, uint64_t low, uint64_t high) {
    (void)high;
    return array.data + low * comem_element_size_(array);
}
static inline int comem_write_end(comem_array array, uint64_t low, uint64_t high) {
    return comem_read_end(array, low, high);
}
static inline comem_array comem_new_(size_t element_size, uint64_t length, const comem_object_options *options) {
    comem_array array;
    if (comem_create(&array, element_size, length, options) != 0) {
        comem_abort(1, "no memory for an array");
    }
    return array;
}

#define COMEM_READ_ELEMENT_(type, array, index, value) ((value) = ((const type *)(const void *)(array).data)[index])
#define COMEM_WRITE_ELEMENT_(type, array, index, value) (((type *)(void *)(array).data)[index] = (value))

#endif /* COMEM_SEQUENTIAL_H */
