/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * jia.h: programs written for JIAJIA run on Comem, for C and C++.
 *
 *     cc -Iinclude/compat program.c -lcomem && comem run -n 4 ./a.out
 *
 * Written from the manual of JIAJIA 2.1 (section 4) and the interface of its successor. All hosts run main(); a *host*
 * is a node of Comem, with one thread. Consistency is JIAJIA's, scope consistency, unless the job chooses another
 * engine (`comem run --engine hlrc`). There are no limits on locks, hosts and memory but Comem's own, and sizes are
 * size_t. docs/jiajia.md lists what is supported and what differs.
 *
 * Errors. What goes wrong prints one sentence and ends the job; so results need no check.
 */
#ifndef COMEM_COMPAT_JIA_H
#define COMEM_COMPAT_JIA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "comem_worker_process.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the job ------------------------------------------------------------------------------------------------- */

/* This host, counted from 0, and how many there are; set by jia_init(). Each file of the program has them, and the
 * linker makes them one. */
__attribute__((weak)) int jiapid;
__attribute__((weak)) int jiahosts;
/* The next lock that LOCKINIT and ALOCKINIT give out. */
__attribute__((weak)) int jia_lock_index;

extern void comem_jia_init_(int *pid, int *hosts);
extern void comem_jia_arguments_(int argc, char **argv);
extern void comem_program_error_(const char *message) __attribute__((noreturn));

/* Joins the job: first of all calls. Collective, like jia_exit(). Every host gets host 0's arguments, as in JIAJIA,
 * where host 0 starts the others; argv[0] stays, and argc has to be the same. Comem takes nothing from the command
 * line. */
static __inline__ void jia_init(int argc, char **argv) {
    comem_jia_init_(&jiapid, &jiahosts);
    comem_jia_arguments_(argc, argv);
}
/* Leaves the job, when all hosts have come as far: last of all calls. */
extern void jia_exit(void);
/* Prints a message made as printf() makes it, and ends all hosts. */
__attribute__((noreturn, format(printf, 1, 2))) static __inline__ void jia_error(const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    __builtin_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    comem_program_error_(message);
}
#define jia_errexit jia_error
/* JUMP's; programs write it with and without a semicolon. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define JIA_ERROR(...)                                                                                               \
    { jia_error(__VA_ARGS__); }
#else
#define JIA_ERROR jia_error
#endif

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* All are collective, give the same address on every host, and memory that is zero at first. They differ in where pages
 * have their homes: all hosts may use all of the memory, and the home is quickest. Sizes and blocks are in bytes, and
 * rounded up to whole pages of 4 KiB. */

/* Comem chooses: up to a page, the hosts in turn; more, the hosts that write the pages. */
extern unsigned long jia_alloc(size_t size);
/* Host 0. */
extern unsigned long jia_alloc1(size_t size);
/* A block to each host in turn, the first to host 0. */
extern unsigned long jia_alloc2(size_t size, size_t block);
/* One host. */
extern unsigned long jia_alloc2p(size_t size, int proc);
/* A block to each host in turn, the first to `starthost`. */
extern unsigned long jia_alloc3(size_t size, size_t block, int starthost);
/* A block to each host in turn, the first to `starthost`; a round ends with the last host, and blocks[i] is the size in
 * round i. After the last size comes the first again. */
extern unsigned long jia_alloc4(size_t size, const int *blocks, int n, int starthost);
/* array[i] bytes to each host in turn, the first to host 0; after array[n - 1] comes array[0] again. */
extern unsigned long jia_alloc_array(size_t size, const int *array, int n);
/* One host, drawn by chance. */
extern unsigned long jia_alloc_random(size_t size);
/* Gives memory back. Every host calls it, when none uses the memory any more. */
extern void jia_free(void *address);

/* ---- synchronisation ------------------------------------------------------------------------------------------ */

/* Locks are named by any number, and exist without being created. */
extern void jia_lock(int lock);
extern void jia_unlock(int lock);
/* Waits for all hosts; each sees what all wrote. Not to be called while holding a lock. */
extern void jia_barrier(void);
/* Waits for all hosts, and says nothing about memory. */
extern void jia_wait(void);
/* Condition variables, 0 to 1048575: jia_waitcv() returns once the variable is set, and so does every later one until
 * it is reset. */
extern void jia_setcv(int cv);
extern void jia_resetcv(int cv);
extern void jia_waitcv(int cv);

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Sends to a host, which need not wait for it yet. From one host to another, messages arrive in the order of
 * sending. */
extern void jia_send(char *buffer, int length, int to, int tag);
/* Waits for a message from a host (-1: any) with a tag (-1: any), and gives its length, at most `length`. */
extern int jia_recv(char *buffer, int length, int from, int tag);
/* Called by all hosts: the bytes of host `root` go to all. */
extern void jia_bcast(char *buffer, int length, int root);
/* Called by all hosts: host `root` gets the sums, maxima or minima of all hosts' numbers, each in its place. */
extern void jia_reduce(char *send, char *receive, int count, int operation, int root);

#define SUM_INT 0
#define MAX_INT 1
#define MIN_INT 2
#define SUM_FLOAT 10
#define MAX_FLOAT 11
#define MIN_FLOAT 12
#define SUM_DOUBLE 20
#define MAX_DOUBLE 21
#define MIN_DOUBLE 22
#define MSG_PROC_ALL (-1)
#define MSG_TAG_ALL (-1)

/* ---- dividing work, time, techniques
 * ------------------------------------------------------------------------------ */

/* Divides the steps *begin to *end of a loop, both included, and gives this host's: equal parts, the last host's the
 * longest; after jia_config(LOADBAL, ON), in proportion to the power that jia_loadcheck() has found. */
extern void jia_divtask(int *begin, int *end);
/* Rates each host by the time it has computed since the last call. Called by all hosts. */
extern void jia_loadcheck(void);
/* Switches load balancing. What else could be switched is always at work in Comem where it is of use. */
extern void jia_config(int technique, int value);

/* Seconds since jia_init(). */
extern double jia_clock(void);
/* Nanoseconds since jia_init(). */
extern unsigned long jia_current_time(void);
/* Microseconds since jia_init(). Comem's statistics are those of `comem run --stats` and `comem report`. */
extern unsigned int jia_startstat(void);
extern unsigned int jia_stopstat(void);

#ifndef ON
#define OFF 0
#define ON 1
#endif
#define HMIG 0
#define ADWD 1
#define BROADCAST 2
#define LOADBAL 3
#define WVEC 4

/* Write notices given by hand: Comem finds writes itself. */
#define jia_wtnt(address, size)
#define jia_wtntw(address)
#define jia_wtntd(address)

#ifdef __cplusplus
}
#endif

/* ---- the ANL macros
 * ------------------------------------------------------------------------------------------------- */

/* As JIAJIA has them: programs write them with and without a semicolon. Every host runs all of main(), so that what
 * creates processes is empty; so are pauses and self-scheduled loops, which JIAJIA never had. */
#ifndef COMEM_JIA_NO_ANL

#define LOCKDEC(lock) int lock;
#define LOCKINIT(lock)                                                                                               \
    { (lock) = jia_lock_index++; }
#define LOCK(lock)                                                                                                   \
    { jia_lock(lock); }
#define UNLOCK(lock)                                                                                                 \
    { jia_unlock(lock); }

#define ALOCKDEC(locks, count) int locks[count];
#define ALOCKINIT(locks, count)                                                                                      \
    {                                                                                                                \
        int comem_lock_;                                                                                             \
        for (comem_lock_ = 0; comem_lock_ < (count); comem_lock_++) (locks)[comem_lock_] = jia_lock_index++;         \
    }
#define ALOCK(locks, index)                                                                                          \
    { jia_lock((locks)[index]); }
#define AULOCK(locks, index)                                                                                         \
    { jia_unlock((locks)[index]); }

#define BARDEC(barrier) int barrier;
#define BARINIT(barrier)
#define BARRIER(barrier, count)                                                                                      \
    { jia_barrier(); }

#define MAIN_ENV
#define EXTERN_ENV
#define MAIN_INITENV(unused, bytes)
#define MAIN_END
#define WAIT_FOR_END(count)                                                                                          \
    { jia_barrier(); }

#define PAUSEDEC(pause) int pause;
#define PAUSEINIT(pause)
#define PAUSE_POLL(pause)
#define PAUSE_SET(pause, value)
#define PAUSE_RESET(pause)
#define PAUSE_ACCEPT(pause)

#define GSDEC(loop) int loop;
#define GSINIT(loop)
#define GETSUB(loop, subscript, max, count)

#define G_MALLOC(bytes) jia_alloc1(bytes);
#define G2_MALLOC(bytes, unused) jia_alloc(bytes);
#define CLOCK(seconds)                                                                                               \
    { (seconds) = jia_clock(); }

#endif /* COMEM_JIA_NO_ANL */

#endif /* COMEM_COMPAT_JIA_H */
