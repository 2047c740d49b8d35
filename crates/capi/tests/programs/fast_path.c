/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * fast_path: how many instructions a read or write hit of a shared element costs over the plain access, from C. The
 * arrays here are made by hand and the out-of-line half of the accessors is replaced: only what the header
 * compiles into the program is measured.
 */
#define _GNU_SOURCE 1 /* kill, ptrace */
#include <comem.h>

#include "step.h"

static struct comem_tls seat = {0, 3};

uint64_t comem_load_(struct comem_object *object, uint64_t index) {
    (void)object;
    (void)index;
    abort();
}

struct comem_tls *comem_store_(struct comem_object *object, uint64_t index, uint64_t bits) {
    (void)object;
    (void)index;
    (void)bits;
    return &seat;
}

static _Alignas(64) unsigned char memory[STEP_ACCESSES * 8];
static unsigned char permissions[STEP_ACCESSES];
static comem_array made;
static volatile uint64_t kept;

#define LOOPS(name, type)                                                                                            \
    static void read_##name(void) {                                                                                  \
        comem_array_##name array = {made};                                                                           \
        type sum = 0;                                                                                                \
        for (uint64_t i = 0; i < STEP_ACCESSES; i++) sum = (type)(sum + comem_read_##name(array, i));                \
        kept = (uint64_t)sum;                                                                                        \
    }                                                                                                                \
    static void read_plain_##name(void) {                                                                            \
        const volatile type *plain = (const volatile type *)(void *)made.data;                                       \
        type sum = 0;                                                                                                \
        for (uint64_t i = 0; i < STEP_ACCESSES; i++) sum = (type)(sum + plain[i]);                                   \
        kept = (uint64_t)sum;                                                                                        \
    }                                                                                                                \
    static void write_##name(void) {                                                                                 \
        comem_array_##name array = {made};                                                                           \
        for (uint64_t i = 0; i < STEP_ACCESSES; i++) comem_write_##name(array, i, (type)(int)i);                     \
    }                                                                                                                \
    static void write_plain_##name(void) {                                                                           \
        volatile type *plain = (volatile type *)(void *)made.data;                                                   \
        for (uint64_t i = 0; i < STEP_ACCESSES; i++) plain[i] = (type)(int)i;                                        \
    }

LOOPS(u8, uint8_t)
LOOPS(i16, int16_t)
LOOPS(i32, int32_t)
LOOPS(i64, int64_t)
LOOPS(f32, float)
LOOPS(f64, double)

int main(void) {
    int failed = 0;
    made.data = memory;
    made.access = permissions;
    made.length = STEP_ACCESSES;
    for (int i = 0; i < STEP_ACCESSES; i++) permissions[i] = 3;
#define COMPARE(name)                                                                                                \
    failed |= step_compare("read_" #name, read_##name, read_plain_##name, 5);                                        \
    failed |= step_compare("write_" #name, write_##name, write_plain_##name, 8);
    COMPARE(u8)
    COMPARE(i16)
    COMPARE(i32)
    COMPARE(i64)
    COMPARE(f32)
    COMPARE(f64)
    return failed;
}
