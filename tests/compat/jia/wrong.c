/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What makes no sense is refused with a sentence: each word on the command line is one such call.
 */
#include <jia.h>
#include <string.h>
#include <unistd.h>

/* Has no other way out, and the compiler knows. */
static int inverse(int matrix) {
    if (matrix == 0) return 1;
    jia_error("matrix %d is singular\n", matrix);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int none[] = {0};
    char letter[8] = "1234567";
    if (!strcmp(what, "early")) jia_barrier();
    jia_init(argc, argv);
    if (!strcmp(what, "block")) jia_alloc3(8192, 0, 0);
    if (!strcmp(what, "host")) jia_alloc2p(8192, jiahosts);
    if (!strcmp(what, "no-list")) jia_alloc4(8192, NULL, 2, 0);
    if (!strcmp(what, "list")) jia_alloc4(8192, none, 1, 0);
    if (!strcmp(what, "cv")) jia_setcv(-1);
    if (!strcmp(what, "unlock")) jia_unlock(3);
    if (!strcmp(what, "reduction")) jia_reduce(letter, letter, 1, 7, 0);
    if (!strcmp(what, "numbers")) jia_reduce(letter, letter, -1, SUM_INT, 0);
    if (!strcmp(what, "nothing")) jia_reduce(NULL, letter, 1, SUM_INT, 0);
    if (!strcmp(what, "nowhere")) jia_reduce(letter, NULL, 1, SUM_INT, 0);
    if (!strcmp(what, "types")) jia_reduce(letter, letter, 1, jiapid ? SUM_FLOAT : SUM_DOUBLE, 0);
    if (!strcmp(what, "roots")) jia_reduce(letter, letter, 1, MAX_INT, jiapid);
    if (!strcmp(what, "broadcasts")) {
        jia_bcast(letter, 8, jiapid == 1);
        jia_bcast(letter, 8, 0);
    }
    if (!strcmp(what, "message")) {
        jia_send(letter, 8, jiapid, 0);
        jia_recv(letter, 4, jiapid, 0);
    }
    if (!strcmp(what, "error")) printf("%d\n", inverse(42));
    if (!strcmp(what, "order")) jia_alloc(jiapid == 0 ? 4096 : 8192);
    printf("nothing was refused\n");
    jia_exit();
    return 0;
}
