/* Variables of another source file, one of them hidden in a function. */
#include "variables.h"

struct pair pairs[3] = {{'a', 1.5}, {'b', 2.5}, {'c', 3.5}};
int *points_to_answer = &answer;
int table[6000] = {[0] = 1, [3000] = 3001, [5999] = 6000};
uint64_t sums[THREADS_MAX];
char big[BIG_BYTES];

long *hidden(void) {
    static long inside = 17;
    return &inside;
}
