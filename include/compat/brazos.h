/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * brazos.h: programs written for Brazos run on Comem, for C and C++.
 *
 *     comem-cc -O2 -o program program.c && comem run -n 4 -t 2 ./program
 *
 * Written from E. Speight and J. K. Bennett, "Brazos: A Third Generation DSM System" (USENIX Windows NT Workshop, 1997,
 * sections 2.3, 3.1, 3.3 and 3.6). A program defines UserMain() instead of main(). Every thread of every process of the
 * job runs it, with its number in the job and its number in its process. Its macros are those of PARMACS and two locks
 * more. The same executable runs in one process, without comem run, and on several machines.
 *
 * This header brings main(), and the macros that most programs use, as the C preprocessor's. Whoever wants all of them
 * sends the program through m4 with parmacs.m4 first; the two go together. docs/brazos.md explains what is shared, and
 * what differs.
 *
 * Errors. What goes wrong prints one sentence and ends the job; so results need no check.
 */
#ifndef COMEM_COMPAT_BRAZOS_H
#define COMEM_COMPAT_BRAZOS_H

#include "comem_parmacs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The program: GlobalId counts the threads of the job from 0, LocalId those of a process. A number other than 0 ends
 * the job with that status. A program whose UserMain() returns nothing defines BRAZOS_VOID_USERMAIN before it includes
 * this header. */
#ifdef BRAZOS_VOID_USERMAIN
extern void UserMain(int GlobalId, int LocalId);
#else
extern int UserMain(int GlobalId, int LocalId);
#endif

extern int comem_user_threads_(void);
extern int comem_user_local_id_(void);
extern int comem_user_arguments_(char ***argv);

/* Threads of the job and of each process, and processes. */
static __inline__ int brazos_threads(void) { return comem_user_threads_(); }
static __inline__ int brazos_processes(void) { return comem_slot_node(comem_user_threads_() - 1) + 1; }
static __inline__ int brazos_local_threads(void) { return brazos_threads() / brazos_processes(); }
/* The command line, the same in each process: how many words it has, and where they are (in the process's memory). */
static __inline__ int brazos_arguments(char ***argv) { return comem_user_arguments_(argv); }

/* G_MALLOC_ALL(bytes): shared memory that every process asks for, by one of its threads. The first calls of all
 * processes give the same memory, and so do the second ones, and so on. Collective: it may wait for the others. */
extern void *comem_g_malloc_all(size_t bytes);

/* ---- what runs UserMain() --------------------------------------------------------------------------------------- */

static __inline__ void comem_run_user_main_(void *unused) {
    int status = 0;
    (void)unused;
#ifdef BRAZOS_VOID_USERMAIN
    UserMain(comem_worker_slot(), comem_user_local_id_());
#else
    status = UserMain(comem_worker_slot(), comem_user_local_id_());
#endif
    /* A status has eight bits; what is not 0 stays so. */
    if (status != 0) comem_exit_(status & 0xff ? status & 0xff : 1);
}

COMEM_PROCESS_CONSTRUCTOR_

#ifdef __cplusplus
}
#endif

/* Each file of the program may include this header; the linker makes one of all these. */
__attribute__((weak)) int main(void) {
    const int threads = comem_user_threads_();
    comem_create_workers((void (*)(void))comem_run_user_main_, threads);
    comem_wait_workers(threads - 1);
    return 0;
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

#define comem_name_(variable) ((uint64_t)(uintptr_t) & (variable))

#define G_MALLOC(bytes) comem_g_malloc((size_t)(bytes))
#define G_MALLOC_ALL(bytes) (comem_site_(__FILE__, __LINE__), comem_g_malloc_all((size_t)(bytes)))
#define G_FREE(pointer) comem_g_free((void *)(pointer))

/* Locks and barriers are named by the address of what these declare, which nobody reads: globals, whose addresses are
 * the same in each process, or words in shared memory. */
#define LOCKDEC(lock) unsigned long lock;
#define LOCKINIT(lock) { (void)&(lock); }
#define LOCK(lock) { comem_parmacs_lock(comem_name_(lock)); }
#define UNLOCK(lock) { comem_parmacs_unlock(comem_name_(lock)); }
#define ALOCKDEC(locks, count) unsigned long locks[count];
#define ALOCKINIT(locks, count) { (void)&(locks)[0]; }
#define ALOCK(locks, index) { comem_parmacs_lock(comem_name_((locks)[index])); }
#define AULOCK(locks, index) { comem_parmacs_unlock(comem_name_((locks)[index])); }
/* Brazos's lock primitives for programs that want release consistency where the engine offers scope consistency. */
#define LAZY_LOCK(lock) { comem_parmacs_lock_lazy(comem_name_(lock)); }
#define RC_UNLOCK(lock) { comem_parmacs_unlock_rc(comem_name_(lock)); }
#define BARDEC(barrier) unsigned long barrier;
#define BARINIT(barrier) { (void)&(barrier); }
#define BARRIER(barrier, threads) { comem_barrier_of(comem_name_(barrier), (unsigned)(threads)); }
#define CLOCK(time) { (time) = comem_clock_us(); }

#endif /* COMEM_COMPAT_BRAZOS_H */
