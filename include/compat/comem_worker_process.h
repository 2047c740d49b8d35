/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_worker_process.h: marks a program each of whose workers is a process, because it keeps its own data in global
 * variables. `comem run -n 2 -t 2` starts four processes of one thread for it, two on each of two hosts. jia.h, tmk.h
 * and quarks.h include this.
 *
 * The mark is a note in the program's file (System V ABI, "Note Section"): owner "Comem", type 1, nothing else. It
 * defines no name.
 */
#ifndef COMEM_WORKER_PROCESS_H
#define COMEM_WORKER_PROCESS_H

__asm__(".pushsection .note.comem, \"a\", %note\n"
        "    .balign 4\n"
        "    .long 6, 0, 1\n"
        "    .asciz \"Comem\"\n"
        "    .balign 4\n"
        "    .popsection");

#endif /* COMEM_WORKER_PROCESS_H */
