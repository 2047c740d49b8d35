/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What hosts see of the command line; each says it.
 */
#include <jia.h>
#include <string.h>

int main(int argc, char **argv) {
    int i;
    jia_init(argc, argv);
    printf("host %d:", jiapid);
    for (i = 1; i < argc; i++) printf(" [%s]", argv[i]);
    printf("\n");
    jia_barrier();
    if (argc > 1 && !strcmp(argv[1], "error")) JIA_ERROR("no file %s of %d", "input", 3)
    jia_exit();
    return 0;
}
