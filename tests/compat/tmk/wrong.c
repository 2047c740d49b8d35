/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What makes no sense is refused with a sentence: the word on the command line is such a call.
 */
#include <stdlib.h>
#include <string.h>
#include <tmk.h>

static int variable;

/* Has no other way out, and the compiler knows. */
static int opened(const char *name) {
    if (!strcmp(name, "output")) return 1;
    Tmk_errexit("no file %s\n", name);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int local = 0;
    int *heap = malloc(sizeof *heap);
    Tmk_err("%s comes %s\n", "an error", "early");
    if (!strcmp(what, "early")) Tmk_barrier(0);
    Tmk_startup(argc, argv);
    if (!strcmp(what, "local")) Tmk_distribute(&local, sizeof local);
    if (!strcmp(what, "heap")) Tmk_distribute(heap, sizeof *heap);
    if (!strcmp(what, "long")) Tmk_distribute(&variable, 1 << 30);
    if (!strcmp(what, "negative")) Tmk_distribute(&variable, -1);
    if (!strcmp(what, "release")) Tmk_lock_release(1);
    if (!strcmp(what, "error")) printf("%d\n", opened("input"));
    printf("nothing was refused\n");
    free(heap);
    Tmk_exit(!strcmp(what, "status") ? 7 : 0);
}
