/* The variables that the test programs share: of several kinds, in two source files, many on one page. */
#ifndef VARIABLES_H
#define VARIABLES_H

#include <stddef.h>
#include <stdint.h>

#define THREADS_MAX 16
#define ROUNDS 20
#define BIG_BYTES (300UL << 20)

struct pair {
    char letter;
    double number;
};

/* With values. */
extern int answer;
extern struct pair pairs[3];
extern const char *words[2];
extern int *points_to_answer;
/* Pages of them that nobody touches before they are shared. */
extern int table[6000];
/* Zero at first; neighbours on few pages. */
extern unsigned char bytes_of[64 * THREADS_MAX];
extern uint64_t sums[THREADS_MAX];
extern long counter;
extern long taken[THREADS_MAX * ROUNDS];
extern char line[4096];
extern char text[3 * 4096];
/* In a function of other.c. */
extern long *hidden(void);
/* Never touched but for a few bytes. */
extern char big[BIG_BYTES];

/* The linker's script sets these. */
extern char __comem_globals_start[], __comem_globals_end[];

#endif
