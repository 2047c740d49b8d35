/* One mistake with memory whose accesses the program checks itself; the argument says which. It must end the node. */
#include "checked.h"
#include "comem.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static char *memory;
static const char *mistake;

static int is(const char *name)
{
    return strcmp(mistake, name) == 0;
}

static void part(void *argument)
{
    (void)argument;
    int last = comem_thread() == comem_threads() - 1;
    STORE((uint64_t *)memory, 1);
    comem_barrier();
    if (last && is("beyond"))
        printf("%d\n", LOAD((int *)(memory + (1 << 20))));
    if (last && is("store-beyond"))
        STORE((int *)(memory + (1 << 20)), 7);
    if (last && is("copy-beyond"))
        __comem_inline_memcpy(memory + (1 << 20), memory, 100);
    if (is("abort")) {
        const char *sentence = "the grid has a hole";
        for (int at = 0; at <= (int)strlen(sentence) && !last; at++)
            STORE(memory + 64 + at, sentence[at]);
        comem_barrier();
        if (last)
            comem_abort(77, memory + 64);
        comem_barrier();
    }
    if (last && is("two-units")) {
        /* The plug-in leaves what is not aligned to this call. */
        uint64_t one = 1, old;
        __comem_inline_atomic(memory + 60, sizeof one, 1, &one, NULL, &old);
    }
    if (is("freed")) {
        comem_barrier();
        comem_free(memory);
        comem_barrier();
        if (last)
            printf("%d\n", LOAD((int *)memory));
    }
    if (last && is("unmapped")) {
        munmap(memory, 4096);
        printf("%d\n", LOAD((int *)memory));
    }
    if (is("read-only")) {
        comem_freeze(memory);
        comem_barrier();
        STORE((uint64_t *)memory, (uint64_t)comem_thread());
    }
    comem_barrier();
}

int main(int argc, char **argv)
{
    mistake = argc > 1 ? argv[1] : "none";
    comem_region_options options = {.label = "grid", .home = COMEM_HOME_BLOCK};
    if (is("unit"))
        options.unit_bytes = 96;
    if (is("hlrc")) {
        options.engine = "hlrc";
        options.unit_bytes = 128;
    }
    if (is("two"))
        options.unit_bytes = 64, options.unit_pages = 2;
    if (is("pages"))
        options.engine = "direct", options.unit_pages = 2;
    if (comem_start() != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    memory = comem_alloc_all(100000, &options);
    comem_parallel(part, NULL);
    comem_finish();
    return 0;
}
