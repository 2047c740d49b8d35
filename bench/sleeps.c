/* For bench/watching.py: nodes that meet and then sleep for ten seconds. What they take of a core is Comem's. */
#include <comem.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    volatile long *counts = comem_alloc_all(4096, NULL);
    counts[comem_node()] = 1;
    comem_barrier();
    sleep(10);
    return comem_finish();
}
