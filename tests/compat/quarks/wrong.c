/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What makes no sense is refused with a sentence: the word on the command line is such a call.
 */
#include <Quarks.h>
#include <stdio.h>
#include <string.h>

static void nothing(void) {}
static void fork_again(void) { Qk_fork(nothing); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    static int variable;
    Qk_initialize();
    if (!strcmp(what, "many")) {
        int i;
        for (i = 0; i < Qknumnodes; i++) Qk_fork(nothing);
    }
    if (!strcmp(what, "slave")) Qk_fork(fork_again);
    if (!strcmp(what, "data")) Qk_fork(&variable);
    if (!strcmp(what, "release")) Qk_release(5);
    if (!strcmp(what, "barrier")) Qk_wait_barrier(Qk_newbarrier(), Qknumnodes + 1);
    if (!strcmp(what, "crossers")) Qk_wait_barrier(Qk_newbarrier(), -1);
    if (!strcmp(what, "nobody")) Qk_wait_barrier(Qk_newbarrier(), 0);
    if (!strcmp(what, "destroy")) Qk_destroy_region(5);
    Qk_shutdown(0);
    printf("nothing was refused\n");
    return 0;
}
