/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_globals.h: a program's global variables as shared memory (`comem run --globals share`). The process models of
 * include/compat call this before main(); a program that keeps its own variables in a stretch of whole pages may, too.
 */
#ifndef COMEM_GLOBALS_H
#define COMEM_GLOBALS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the memory from `start` to `end` shared, where it is: all nodes see what stands there on node 0; zeros that
 * nobody has touched cost nothing. Both are addresses of pages, the same on every node (the program is linked with
 * -no-pie), and nothing of the C library or the loader lies between. Collective: one thread of every node calls, once,
 * after comem_start() and before anybody uses the memory in parallel. A job of one node does nothing. After
 * comem_finish() the memory is each process's own again; node 0 keeps what was written last. 0, or an error code of
 * comem.h. */
extern int comem_share_globals_(void *start, void *end);

#ifdef __cplusplus
}
#endif

#endif /* COMEM_GLOBALS_H */
