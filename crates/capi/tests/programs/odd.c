/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * odd: prints its second argument on each node, one after another; or closes descriptors that it has not opened.
 */
#include <comem.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (comem_start() != 0 || argc < 2) return 1;
    if (!strcmp(argv[1], "args")) {
        for (int node = 0; node < comem_nodes(); node++) {
            if (comem_node() == node) {
                printf("%s\n", argv[2]);
                fflush(stdout);
            }
            comem_barrier();
        }
        return comem_finish() != 0;
    }
    comem_barrier();
    if (comem_node() == 1) {
        for (int descriptor = 3; descriptor < 1024; descriptor++) close(descriptor);
    }
    for (int round = 0; round < 1000; round++) comem_barrier();
    return comem_finish() != 0;
}
