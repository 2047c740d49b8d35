/* Another file with the header: the program has one main() all the same. */
#include <brazos.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

static long *words;
static long word_count;

void large_memory(long count) {
    word_count = count;
    words = (long *)G_MALLOC_ALL((size_t)count * sizeof(long));
}

/* Threads write in turn, word by word. */
void check_large_memory(int id, int threads, void *barrier) {
    long i;
    for (i = id; i < word_count; i += threads) words[i] = 3 * i + 1;
    BARRIER(*(unsigned long *)barrier, threads)
    for (i = 0; i < word_count; i += 97) {
        if (words[i] != 3 * i + 1) {
            fprintf(stderr, "wrong: word %ld is %ld\n", i, words[i]);
            exit(9);
        }
    }
    BARRIER(*(unsigned long *)barrier, threads)
}
