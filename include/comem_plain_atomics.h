/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_plain_atomics.h: what comem.h's atomic operations do to a word, without Comem.
 *
 * Included by comem.h under -DCOMEM_SEQUENTIAL and -DCOMEM_PTHREADS, never by programs.
 */
#ifndef COMEM_PLAIN_ATOMICS_H
#define COMEM_PLAIN_ATOMICS_H

/* The lesser of two, or with `greater` the greater; a NaN if one of them is. */
#define COMEM_CHOOSE_(type, old, operand, greater)                                                                   \
    do {                                                                                                             \
        type old_, operand_;                                                                                         \
        memcpy(&old_, &(old), sizeof old_);                                                                          \
        memcpy(&operand_, &(operand), sizeof operand_);                                                              \
        return old_ != old_ || ((greater) ? old_ >= operand_ : old_ <= operand_) ? (old) : (operand);                \
    } while (0)

static inline uint64_t comem_choose_(int kind, uint64_t old, uint64_t operand, int greater) {
    switch (kind) {
    case 0: COMEM_CHOOSE_(int32_t, old, operand, greater);
    case 1: COMEM_CHOOSE_(uint32_t, old, operand, greater);
    case 2: COMEM_CHOOSE_(int64_t, old, operand, greater);
    case 3: COMEM_CHOOSE_(uint64_t, old, operand, greater);
    default: COMEM_CHOOSE_(double, old, operand, greater);
    }
}
#undef COMEM_CHOOSE_

/* What a word that held `old` holds after the operation. */
static inline uint64_t comem_apply_(int kind, int op, uint64_t old, uint64_t operand, uint64_t expected) {
    if (kind == 4 && (op == 2 || op == 9)) {
        double number, other;
        memcpy(&number, &old, sizeof number);
        memcpy(&other, &operand, sizeof other);
        number = op == 2 ? number + other : number - other;
        memcpy(&old, &number, sizeof old);
        return old;
    }
    switch (op) {
    case 1: return operand;
    case 2: return old + operand;
    case 3: return old & operand;
    case 4: return old | operand;
    case 5: return old ^ operand;
    case 6: return comem_choose_(kind, old, operand, 0);
    case 7: return comem_choose_(kind, old, operand, 1);
    case 8: return old == expected ? operand : old;
    case 9: return old - operand;
    default: return old;
    }
}

/* The operation on a word, by the processor; gives what it held. */
static inline uint64_t comem_atomic_(void *word, int kind, int op, uint64_t operand, uint64_t expected, int ordered) {
    (void)ordered;
    if (kind < 2) {
        uint32_t *narrow = (uint32_t *)word, old = __atomic_load_n(narrow, __ATOMIC_SEQ_CST);
        while (op) {
            const uint32_t now = (uint32_t)comem_apply_(kind, op, old, operand, (uint32_t)expected);
            if (__atomic_compare_exchange_n(narrow, &old, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
        }
        return old;
    }
    uint64_t *wide = (uint64_t *)word, old = __atomic_load_n(wide, __ATOMIC_SEQ_CST);
    while (op && !__atomic_compare_exchange_n(wide, &old, comem_apply_(kind, op, old, operand, expected), 0,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

#endif /* COMEM_PLAIN_ATOMICS_H */
