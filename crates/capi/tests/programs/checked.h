/* Checked accesses by hand, exactly as the plug-in of `comem-cc --inline` makes them, for machines without it.
 *
 * LOAD(p), STORE(p, v), ADD(p, v) and CAS(p, expected, v) access what `p` points to, of 1, 2, 4 or 8 bytes, aligned. */
#ifndef COMEM_TESTS_CHECKED_H
#define COMEM_TESTS_CHECKED_H

#include "../../../../compiler/abi.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

__attribute__((weak)) __thread uint64_t *__comem_hazard;

static void *checked_hazard(void)
{
    return &__comem_hazard;
}

__attribute__((constructor(101))) static void checked_begin(void)
{
    __comem_inline_object(COMEM_INLINE_ABI, "checked.h", checked_hazard);
}

static inline volatile uint16_t *checked_entry(const volatile void *address)
{
    return (volatile uint16_t *)(uintptr_t)(COMEM_TABLE + ((uintptr_t)address >> 6 << 1));
}

static inline uint64_t *checked_slot(void)
{
    if (__comem_hazard == NULL)
        __comem_hazard = (uint64_t *)__comem_inline_enter();
    return __comem_hazard;
}

#define CHECKED_BARRIER() __asm__ volatile("" ::: "memory")

/* Raises the hazard and checks the entry: whether the store may go ahead. */
static inline int checked_raise(volatile void *address)
{
    volatile uint64_t *slot = checked_slot();
    *slot = (uintptr_t)address;
    CHECKED_BARRIER();
    if (*checked_entry(address) == 0)
        return 1;
    *slot = 0;
    return 0;
}

static inline void checked_lower(void)
{
    CHECKED_BARRIER();
    *(volatile uint64_t *)__comem_hazard = 0;
}

/* Whether a value may be part of an invalid unit: of 1 and 2 bytes, the aligned word around is looked at again. */
static inline int checked_looks_invalid(const volatile void *address, uint64_t value, size_t bytes)
{
    if (bytes >= 4)
        return (uint32_t)value == COMEM_MAGIC;
    if (bytes == 2 && value != 0xfffd)
        return 0;
    if (bytes == 1 && value != 0xfd && value != 0xff)
        return 0;
    return *(const volatile uint32_t *)((uintptr_t)address & ~(uintptr_t)3) == COMEM_MAGIC;
}

#define LOAD(p)                                                                                                       \
    __extension__({                                                                                                   \
        __typeof__(*(p)) checked_value = *(const volatile __typeof__(*(p)) *)(p);                                     \
        uint64_t checked_bits = 0;                                                                                    \
        memcpy(&checked_bits, &checked_value, sizeof checked_value);                                                  \
        if (checked_looks_invalid((p), checked_bits, sizeof checked_value))                                           \
            __comem_inline_load((const void *)(uintptr_t)(p), &checked_value, sizeof checked_value);                  \
        checked_value;                                                                                                \
    })

#define STORE(p, v)                                                                                                   \
    do {                                                                                                              \
        __typeof__(*(p)) checked_new = (v);                                                                           \
        if (checked_raise(p)) {                                                                                       \
            *(volatile __typeof__(*(p)) *)(p) = checked_new;                                                          \
            checked_lower();                                                                                          \
        } else {                                                                                                      \
            __comem_inline_store((void *)(uintptr_t)(p), &checked_new, sizeof checked_new);                           \
        }                                                                                                             \
    } while (0)

/* Adds, as one step; gives what was there. LLVM's number for an addition is 1. */
#define ADD(p, v)                                                                                                     \
    __extension__({                                                                                                   \
        __typeof__(*(p)) checked_old, checked_operand = (v);                                                          \
        if (checked_raise(p)) {                                                                                       \
            checked_old = __atomic_fetch_add((p), checked_operand, __ATOMIC_SEQ_CST);                                 \
            checked_lower();                                                                                          \
        } else {                                                                                                      \
            __comem_inline_atomic((void *)(uintptr_t)(p), sizeof checked_old, 1, &checked_operand, NULL,              \
                                  &checked_old);                                                                      \
        }                                                                                                             \
        checked_old;                                                                                                  \
    })

/* Stores `v` if `e` is there; gives what was there. */
#define CAS(p, e, v)                                                                                                  \
    __extension__({                                                                                                   \
        __typeof__(*(p)) checked_old = (e), checked_expected = (e), checked_new = (v);                                \
        if (checked_raise(p)) {                                                                                       \
            __atomic_compare_exchange_n((p), &checked_old, checked_new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
            checked_lower();                                                                                          \
        } else {                                                                                                      \
            __comem_inline_atomic((void *)(uintptr_t)(p), sizeof checked_old, 100, &checked_new, &checked_expected,   \
                                  &checked_old);                                                                      \
        }                                                                                                             \
        checked_old;                                                                                                  \
    })

/* The hazard for a strip of stores: so many lines from the address's line on. Whether all may go ahead after at most
 * two rounds of making them exclusive. checked_lower() ends the strip. */
static inline int checked_strip(volatile void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address >> 6, last = ((uintptr_t)address + bytes - 1) >> 6;
    volatile uint64_t *slot = checked_slot();
    for (int round = 0; round < 3; round++) {
        *slot = (uintptr_t)address | (uint64_t)(last - first + 1) << 48;
        CHECKED_BARRIER();
        uintptr_t line = first;
        while (line <= last && *checked_entry((void *)(line << 6)) == 0)
            line++;
        if (line > last)
            return 1;
        *slot = 0;
        if (round < 2)
            __comem_inline_own((const void *)(uintptr_t)address, bytes);
    }
    return 0;
}

#endif
