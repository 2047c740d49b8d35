/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * tmk.h: programs written for TreadMarks run on Comem, for C and C++.
 *
 *     cc -Iinclude/compat program.c -lcomem && comem run -n 4 ./a.out
 *
 * Written from C. Amza and others, "TreadMarks: Shared Memory Computing on Networks of Workstations" (IEEE Computer
 * 29(2), 1996, section 2), and from what programs call. All processes run main(); a process is a node of Comem, with
 * one thread. Consistency is TreadMarks', lazy release consistency, by the engine `hlrc`. There are no limits on locks,
 * barriers, processes and memory but Comem's own, and sizes are size_t. docs/treadmarks.md lists what is supported and
 * what differs.
 *
 * Errors. What goes wrong prints one sentence and ends the job; so results need no check.
 */
#ifndef COMEM_COMPAT_TMK_H
#define COMEM_COMPAT_TMK_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "comem_worker_process.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This process, counted from 0, and how many there are; set by Tmk_startup(). Each file of the program has them, and
 * the linker makes them one. */
__attribute__((weak)) unsigned Tmk_proc_id;
__attribute__((weak)) unsigned Tmk_nprocs;

/* Sizes for programs' own tables; Comem stops at none of them but the first. */
#define TMK_NPROCS 1024
#define TMK_NPAGES 16384
#define TMK_NBARRIERS 1024
#define TMK_NLOCKS 65536
#define TMK_NCONDS 65536
/* Bytes of a page. */
#define Tmk_page_size 4096u

extern void comem_tmk_startup_(unsigned *proc_id, unsigned *nprocs);
extern void comem_program_error_(const char *message) __attribute__((noreturn));

/* Joins the job: first of all calls. Collective, like Tmk_exit(). The command line is the program's own. */
static __inline__ void Tmk_startup(int argc, char *const *argv) {
    (void)argc;
    (void)argv;
    comem_tmk_startup_(&Tmk_proc_id, &Tmk_nprocs);
}
/* Waits until all processes have come as far, leaves the job, and ends the process with this status. */
extern void Tmk_exit(int status) __attribute__((noreturn));
/* Prints a message made as printf() makes it, on standard error; also before Tmk_startup(). */
__attribute__((format(printf, 1, 2))) static __inline__ void Tmk_err(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
}
/* The same, and ends all processes. */
__attribute__((noreturn, format(printf, 1, 2))) static __inline__ void Tmk_errexit(const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    __builtin_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    comem_program_error_(message);
}

/* Allocates shared memory, zero at first: any process, at any time; the others get the pointer by Tmk_distribute(). */
extern void *Tmk_malloc(size_t size);
/* The same, in pages of its own. */
extern void *Tmk_sbrk(size_t size);
/* Gives memory back, from any process. */
extern void Tmk_free(void *pointer);

/* Copies the value that a global or static variable has now, such as a pointer to shared memory, to the same variable
 * of all other processes. A process finds it there once it has synchronised with this one: after the next barrier, or
 * after it has acquired a lock that this one has released since. */
extern void Tmk_distribute(const void *variable, int size);

/* Waits for all processes; each sees what all wrote. Barriers with different numbers are one and the same. */
extern void Tmk_barrier(unsigned barrier);
/* Locks are named by any number, and exist without being created. */
extern void Tmk_lock_acquire(unsigned lock);
extern void Tmk_lock_release(unsigned lock);
/* Condition variables, each with a lock that the caller holds. */
extern void Tmk_lock_cond_wait(unsigned lock, unsigned condition);
extern void Tmk_lock_cond_signal(unsigned lock, unsigned condition);
extern void Tmk_lock_cond_broadcast(unsigned lock, unsigned condition);

#ifdef __cplusplus
}
#endif

#endif /* COMEM_COMPAT_TMK_H */
