/* A job to look at: each thread counts in a word of its own, all words lie in one page, and the job goes on until it is
 * ended. What it prints and what its array is called is HTML, which a page has to show as text. */
#include <comem.h>
#include <stdio.h>
#include <time.h>

static volatile long *counts;

static void work(void *unused) {
    (void)unused;
    const struct timespec a_moment = {0, 2000000};
    for (;;) {
        counts[comem_thread()]++;
        comem_barrier();
        nanosleep(&a_moment, NULL);
    }
}

int main(int argc, char **argv) {
    if (comem_start_args(&argc, argv) != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    comem_region_options options = {0};
    options.label = "<img src=x onerror=alert(1)>";
    counts = comem_alloc_all(4096, &options);
    if (comem_node() == 0) printf("<script>alert(2)</script> begins with [%s]\n", argc > 1 ? argv[1] : "nothing");
    fflush(stdout);
    comem_parallel(work, NULL);
    return comem_finish();
}
