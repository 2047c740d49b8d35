/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_splash4.h: the atomic macros of SPLASH-4, for C and C++: what parmacs.m4 makes of LOAD, STORE, CAS, FETCH_ADD,
 * FETCH_SUB and FETCH_ADD_DOUBLE. comem_parmacs.h includes it.
 *
 * The variable is an integer, a pointer or a floating-point number of 1, 2, 4 or 8 bytes in shared memory. On one node,
 * and under the engine `msi`, the processor's own atomics are used. Under `hlrc` and `scope` each variable has a lock,
 * named by its address, that every one of these macros holds: an access is as dear as a LOCK and an UNLOCK. Either way
 * they are sequentially consistent, as SPLASH-4's own are: who sees by LOAD what another has stored sees all that was
 * written before it.
 *
 * A variable that each node has for itself is an error in a job of several nodes, once there are workers.
 */
#ifndef COMEM_SPLASH4_H
#define COMEM_SPLASH4_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern void comem_splash4_load_(void *variable, size_t bytes, void *result);
extern void comem_splash4_store_(void *variable, size_t bytes, const void *value);
extern int comem_splash4_cas_(void *variable, size_t bytes, void *expected, const void *value);
extern uint64_t comem_splash4_fetch_add_(void *variable, size_t bytes, uint64_t value, const char *macro_name);
extern double comem_splash4_fetch_add_double_(double *variable, double value);

#ifdef __cplusplus
}

/* A program may include this within its own extern "C". */
extern "C++" {
template <class Type> struct comem_splash4_plain_ {
    typedef Type type;
};
template <class Type> struct comem_splash4_plain_<volatile Type> {
    typedef Type type;
};

template <class Type> inline typename comem_splash4_plain_<Type>::type comem_splash4_load(Type &variable) {
    typename comem_splash4_plain_<Type>::type result;
    comem_splash4_load_(const_cast<void *>(static_cast<const volatile void *>(&variable)), sizeof result, &result);
    return result;
}
template <class Type, class Value> inline void comem_splash4_store(Type &variable, Value given) {
    typename comem_splash4_plain_<Type>::type value = given;
    comem_splash4_store_(const_cast<void *>(static_cast<const volatile void *>(&variable)), sizeof value, &value);
}
template <class Type, class Value>
inline int comem_splash4_cas(Type &variable, typename comem_splash4_plain_<Type>::type &expected, Value given) {
    typename comem_splash4_plain_<Type>::type value = given;
    return comem_splash4_cas_(const_cast<void *>(static_cast<const volatile void *>(&variable)), sizeof value,
                              &expected, &value);
}
template <class Type> inline uint64_t comem_splash4_add_(Type &variable, uint64_t value, const char *macro_name) {
    (void)sizeof(variable & 1); /* integers only */
    return (uint64_t)(typename comem_splash4_plain_<Type>::type)comem_splash4_fetch_add_(
        const_cast<void *>(static_cast<const volatile void *>(&variable)), sizeof variable, value, macro_name);
}
#define comem_splash4_fetch_add(variable, value) comem_splash4_add_(variable, (uint64_t)(value), "FETCH_ADD")
#define comem_splash4_fetch_sub(variable, value) comem_splash4_add_(variable, -(uint64_t)(value), "FETCH_SUB")
}

#else

/* The type of a variable's value, without `volatile` and the like. */
#define comem_splash4_type_(variable) __typeof__((void)0, (variable))

#define comem_splash4_load(variable)                                                                                 \
    __extension__({                                                                                                  \
        comem_splash4_type_(variable) comem_loaded_;                                                                 \
        comem_splash4_load_((void *)&(variable), sizeof comem_loaded_, &comem_loaded_);                              \
        comem_loaded_;                                                                                               \
    })
#define comem_splash4_store(variable, value)                                                                         \
    __extension__({                                                                                                  \
        comem_splash4_type_(variable) comem_stored_ = (value);                                                       \
        comem_splash4_store_((void *)&(variable), sizeof comem_stored_, &comem_stored_);                             \
    })
/* `expected` is a variable of the same size, which gets what was found. */
#define comem_splash4_cas(variable, expected, value)                                                                 \
    __extension__({                                                                                                  \
        comem_splash4_type_(variable) comem_desired_ = (value);                                                      \
        (void)sizeof(char[sizeof(expected) == sizeof comem_desired_ ? 1 : -1]);                                      \
        comem_splash4_cas_((void *)&(variable), sizeof comem_desired_, (void *)&(expected), &comem_desired_);        \
    })
#define comem_splash4_add_(variable, value, macro_name)                                                              \
    __extension__({                                                                                                  \
        (void)sizeof((variable) & 1); /* integers only */                                                            \
        (uint64_t)(comem_splash4_type_(variable))comem_splash4_fetch_add_((void *)&(variable), sizeof(variable),     \
                                                                          value, macro_name);                        \
    })
#define comem_splash4_fetch_add(variable, value) comem_splash4_add_(variable, (uint64_t)(value), "FETCH_ADD")
#define comem_splash4_fetch_sub(variable, value) comem_splash4_add_(variable, -(uint64_t)(value), "FETCH_SUB")

#endif

#define comem_splash4_fetch_add_double(variable, value)                                                              \
    comem_splash4_fetch_add_double_((double *)(variable), (double)(value))

#endif /* COMEM_SPLASH4_H */
