/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_parmacs.h: the process model of PARMACS, for C and C++: what the macros of parmacs.m4 call.
 *
 * Node 0 runs main(). On every other node the program starts too, but waits in comem_process_start_(), before main(),
 * until node 0 names a function with CREATE; then it runs that function with the program's globals as they stood on
 * node 0 at CREATE. Workers have slots: main is slot 0, the first worker that is created slot 1, and so on. A job of N
 * nodes with T threads each (`comem run -n N -t T`) has N*T slots, and slot i lives on node i / T. A job of one node
 * makes slots as they are needed, so `./prog -p4` alone is four threads.
 *
 * Programs do not call these functions; parmacs.m4 does. This file defines no variable and does not include comem.h:
 * nothing of it lands among the program's own globals.
 *
 * Names (`uint64_t name`) are any numbers: parmacs.m4 takes the address of the lock, barrier or counter in shared
 * memory, whose page is never read for it. Each kind of thing has names of its own.
 *
 * Errors. What goes wrong prints one sentence and ends the job, as everywhere in Comem; so results need no check.
 */
#ifndef COMEM_PARMACS_H
#define COMEM_PARMACS_H

#include <stddef.h>
#include <stdint.h>

#include "comem_splash4.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- processes ---------------------------------------------------------------------------------------------- */

/* Joins the job. To be called before main(), by a constructor that MAIN_ENV puts into the program:
 *
 *     static void comem_before_main_(int argc, char **argv, char **envp) {
 *         comem_process_start_(argc, argv, envp, __comem_globals_start, __comem_globals_end, comem_before_main_);
 *     }
 *
 * (COMEM_PROCESS_CONSTRUCTOR_ below is just that, with its entry in the program's table of constructors, before the
 * usual ones of priority
 * 65535. The attribute `constructor` will not do: under link-time optimisation compilers make one function of those of
 *        a priority, without
 * arguments.) On node 0 it returns. On every other node it never does: the process calls the
 * program's remaining constructors (C++ has some), waits for work, does it, and exits when node 0's main() has ended.
 * The process executes itself once more if address randomisation is on, so that every node has every library at the
 * same address. */
extern void comem_process_start_(int argc, char **argv, char **envp, void *globals, void *globals_end,
                                 void (*constructor)(int argc, char **argv, char **envp));

/* CREATE(f): starts f on the next free slot. The worker sees everything that the caller has written so far: shared
 * memory, and globals. Only main's thread creates workers. */
extern void comem_create_worker(void (*function)(void));

/* CREATE_WITH_ARG(f, argument): the same for a function with a parameter. A pointer has to be to shared memory, or to
 * the program's globals; one to main's own memory is an error where the worker is on another node. */
extern void comem_create_worker_with(void (*function)(void *argument), void *argument);

/* CREATE(f, n): starts f on n - 1 slots, and runs it in the calling thread too. */
extern void comem_create_workers(void (*function)(void), int n);

/* WAIT_FOR_END(n): waits until n of the workers created have ended, and sees everything that they wrote to shared
 * memory. Their output is out then. `n` may count the caller too, as programs that use CREATE(f, n) do: with w workers
 * still to be waited for, w + 1 waits for all w. Their slots are free again. */
extern void comem_wait_workers(int n);

/* MAIN_END: ends main() in good order, and the job with `status`, once stdio is flushed. Returning from main() and
 * exit() do the same. Workers that still run are waited for if the status is 0, and ended if it is another. */
extern void comem_process_end_(int status) __attribute__((noreturn));

/* exit(): in main the end of the job, with this status. A worker that calls exit(0) has ended as if its function had
 * returned, as a process of its own would; one with another status ends the job with it. comem-cc has the linker bring
 * all calls of exit() in the program's own files and archives here (--wrap=exit). Without that, and from shared
 * libraries, a worker's exit(0) on node 0 is an error. */
extern void comem_exit_(int status) __attribute__((noreturn));

/* GET_PID: the caller's number, counted from 0 in the order in which they ask for the first time: the workers that are
 * at work together, and main, if it asks. When WAIT_FOR_END has waited for all of them, it begins anew. */
extern int comem_worker_number(void);
/* The calling worker's slot: 0 in main, and in a worker that has main's slot. For messages and placement. */
extern int comem_worker_slot(void);
/* How many slots there are: N*T, or in a job of one node 256. */
extern int comem_worker_slots(void);
/* The node that slot `slot` lives on. NU_MALLOC's node is taken modulo the number of nodes. */
extern int comem_slot_node(int slot);

/* ---- synchronisation ------------------------------------------------------------------------------------------ */

/* BARRIER(name, threads): waits until `threads` threads have come to the barrier of that name; any threads of the job,
 * not always the same. Everything written before by those who came is seen after. When `threads` is the number of all
 * slots of the job, it is the whole job's barrier: one message each way for each node. One name with different numbers
 * of threads at once is an error. */
extern void comem_barrier_of(uint64_t name, unsigned threads);

/* LOCK and UNLOCK, named by any number; they exist without being created. */
extern void comem_parmacs_lock(uint64_t name);
extern void comem_parmacs_unlock(uint64_t name);
/* LAZY_LOCK and RC_UNLOCK: Brazos's lazy acquire and release-consistent release. They differ from the plain ones under
 * the engine `scope` alone. Who acquires a lock after an RC_UNLOCK of it, by either call, sees what the releaser had
 * written before, whatever lock that was written under; who acquires it by LAZY_LOCK sees the same after either kind of
 * release. */
extern void comem_parmacs_lock_lazy(uint64_t name);
extern void comem_parmacs_unlock_rc(uint64_t name);
/* A pause counts, from zero: at first, and after PAUSEINIT. SETPAUSE adds one; WAITPAUSE waits until there is one, and
 * leaves it, so that one SETPAUSE lets all pass who wait; CLEARPAUSE takes one away, if there is one. Whoever comes to
 * know, by a barrier or a lock, that a pause was set, finds it set. WAITPAUSE and then CLEARPAUSE by the only one who
 * waits is a semaphore's wait; comem_pause_take() (PAUSE, EVENT) is that in one step, for any number of threads. */
extern void comem_pause_init(uint64_t name);
extern void comem_pause_set(uint64_t name);
extern void comem_pause_wait(uint64_t name);
extern void comem_pause_clear(uint64_t name);
extern void comem_pause_take(uint64_t name);

/* CONDVARWAIT, CONDVARSIGNAL and CONDVARBCAST. The caller of wait holds the lock. */
extern void comem_parmacs_cond_wait(uint64_t condition, uint64_t lock);
extern void comem_parmacs_cond_signal(uint64_t condition);
extern void comem_parmacs_cond_broadcast(uint64_t condition);

/* GETSUB: hands out 0, 1, ... max, each once; then -1 to each of `threads` threads, as soon as all of them have come
 * for it, and it begins again with 0. A counter stands in shared memory (anywhere else is an error in a job of several
 * nodes), on a cache line of its own, all zero at first (GSINIT); nobody but this function touches it after that. */
struct comem_counter {
    long next_;
    long exhausted_;
    char line_[48];
};
static __inline__ void comem_counter_init_(struct comem_counter *counter) { counter->next_ = counter->exhausted_ = 0; }
extern long comem_getsub(struct comem_counter *counter, long max, unsigned threads);

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* G_MALLOC: shared memory, from any node at any time, zero at first, at the same address everywhere, aligned to 64
 * bytes. Small pieces are cut from larger regions of their node, with no message for each. Never NULL: no room is an
 * error. */
extern void *comem_g_malloc(size_t bytes);
/* NU_MALLOC: the same, with its home at `node` (taken modulo the number of nodes). */
extern void *comem_nu_malloc(size_t bytes, int node);
/* Says where the next allocation stands: reports name what it makes after that. */
extern void comem_site_(const char *file, int line);
#define comem_g_malloc(bytes) (comem_site_(__FILE__, __LINE__), comem_g_malloc(bytes))
#define comem_nu_malloc(bytes, node) (comem_site_(__FILE__, __LINE__), comem_nu_malloc(bytes, node))
/* G_FREE, from any node. */
extern void comem_g_free(void *pointer);

/* CLOCK: microseconds since an arbitrary moment of the job, the same on all nodes of one host. */
extern uint64_t comem_clock_us(void);

/* ---- the program's globals
 * ---------------------------------------------------------------------------------------- */

/* Set by the linker script comem_globals.ld, which comem-cc applies: the .data, .bss and COMMON of the program's own
 * objects, page-aligned at both ends. Weak: without the script they are null, and globals stay what they were when the
 * program began on each node. */
extern char __comem_globals_start[] __attribute__((weak));
extern char __comem_globals_data_end[] __attribute__((weak));
extern char __comem_globals_bss_start[] __attribute__((weak));
extern char __comem_globals_end[] __attribute__((weak));

/* What MAIN_ENV puts into the program. */
#define COMEM_PROCESS_CONSTRUCTOR_                                                                                   \
    static void comem_before_main_(int argc, char **argv, char **envp) {                                             \
        comem_process_start_(argc, argv, envp, (void *)__comem_globals_start, (void *)__comem_globals_end,           \
                             comem_before_main_);                                                                    \
    }                                                                                                                \
    __attribute__((section(".init_array.65534"), used)) static void (*comem_constructor_)(int, char **, char **) =   \
        comem_before_main_;

#ifdef __cplusplus
}
#endif

#endif /* COMEM_PARMACS_H */
