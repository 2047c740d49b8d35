/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * misuse: does one thing that must end the node with a sentence; the argument says which.
 */
#include <comem.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int which = argc > 1 ? atoi(argv[1]) : 0;
    comem_array_i32 array;
    if (which == 0) return comem_node(); /* not started */
    if (which == 11) return comem_start() + comem_node(); /* the start fails */
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    printf("started\n"); /* not flushed: it must get out all the same */
    array = comem_new_i32(10, NULL);
    if (which == 1) comem_write_i32(array, 10, 1);
    if (which == 2) comem_unlock(5);
    if (which == 3) comem_abort(9, "enough");
    if (which == 7) comem_abort(256, "enough, too");
    if (which == 4) array = comem_new_i32(UINT64_MAX, NULL);
    if (which == 6) comem_rwunlock(5);
    if (which == 8) comem_prefetch(comem_alloc(8), (size_t)-5, 0);
    if (which == 9) comem_alloc_with(8, &(comem_region_options){.alignment = (size_t)-64});
    if (which == 5) return comem_finish() != 0 || comem_barrier() != 0;
    if (which == 10) abort();
    printf("survived\n");
    return 0;
}
