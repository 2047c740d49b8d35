/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * quarks.h: programs written for Quarks run on Comem, for C and C++.
 *
 *     cc -Iinclude/compat program.c -lcomem && comem run -n 4 ./a.out 4
 *
 * Quarks is the system of the University of Utah (J. B. Carter, D. Khandekar, L. Kamb, "Distributed Shared Memory:
 * Where We Are and Where We Should Be Headed", HotOS-V, 1995; M. Swanson, L. Stoller, J. Carter, "Making Distributed
 * Shared Memory Simple, Yet Efficient", HIPS 1998). Taken as its interface is what its own programs call. The master,
 * node 1, runs main(); on the other nodes Qk_initialize() does not return: they wait there, and run the functions that
 * the master forks. A node is a node of Comem, with one thread. Memory is that of release consistency, by the engine
 * `hlrc`. docs/quarks.md lists what is supported and what differs.
 *
 * Errors. What goes wrong prints one sentence and ends the job; so results need no check, where nothing else is said.
 */
#ifndef COMEM_COMPAT_QUARKS_H
#define COMEM_COMPAT_QUARKS_H

#include <stddef.h>

#include "comem_worker_process.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names of regions, locks and barriers; sizes in bytes; addresses. */
typedef unsigned long Id;
typedef unsigned long Size;
typedef unsigned long Address;

/* This node, counted from 1, and how many there are; whether it is the master, and whether it is not. Set by
 * Qk_initialize(). Each file of the program has them, and the linker makes them one. */
__attribute__((weak)) Id Qknodeid;
__attribute__((weak)) int Qknumnodes;
__attribute__((weak)) int Qkmaster;
__attribute__((weak)) int Qkchild;

extern void comem_quarks_init_(Id *node, int *nodes, int *master, int *child);

/* Joins the job: first of all calls. On the master it returns. On the other nodes it runs what is forked, and ends the
 * process when the master shuts down. The hosts are those of `comem run`, and the file of hosts is not read. */
static __inline__ void Qk_init(int argc, char **argv, const char *hosts) {
    (void)argc;
    (void)argv;
    (void)hosts;
    comem_quarks_init_(&Qknodeid, &Qknumnodes, &Qkmaster, &Qkchild);
}
/* In main(), whose arguments are called argc and argv. */
#define Qk_initialize() Qk_init(argc, argv, "Qk.hosts")
/* On the master: waits for the forked functions, ends the other nodes, and leaves the job; ends the process too if
 * `terminate` is not 0. On another node it does nothing. */
extern void Qk_shutdown(int terminate);

/* On the master: runs a function without arguments on the next node that has none, 2, 3 and so on, and gives its
 * number. The node sees everything that was written until now, and finds the regions that the master has created in the
 * same global variables. */
extern int Qk_fork(void *function);
/* On the master: waits until the forked functions have returned, and sees what they wrote. */
extern void Qk_wait_for_threads(void);

/* Creates a region of shared memory, zero at first, and stores its address in *variable (0 if there is such a region
 * already): any node, at any time. */
extern void Qk_create_region(Id region, Size size, unsigned long *variable);
/* Where a region is that another node has created; 0 if there is none. */
extern Address Qk_open_region(Id region);
/* This node does not use the region any more. */
extern void Qk_close_region(Id region);
/* Nobody uses the region any more: gives its memory back. */
extern void Qk_destroy_region(Id region);

/* A new lock or barrier: any node, at any time. */
extern Id Qk_newlock(void);
extern Id Qk_newbarrier(void);
extern void Qk_acquire(Id lock);
extern void Qk_release(Id lock);
/* Waits until `crossers` nodes have come to the barrier; each sees what all of them wrote. */
extern void Qk_wait_barrier(Id barrier, int crossers);

/* Milliseconds since Qk_initialize(). */
extern unsigned long Qk_current_time(void);

#ifdef __cplusplus
}

/* Functions are no objects in C++, so that they need their own. */
inline int Qk_fork(void (*function)()) { return Qk_fork(reinterpret_cast<void *>(function)); }
#endif

#endif /* COMEM_COMPAT_QUARKS_H */
