/* How a program ends: `return` or `exit`, in which thread, with which status. The others wait meanwhile, or have ended.
 * `sizes`: processes ask for common memory of different sizes.
 * With -DBRAZOS_VOID_USERMAIN, UserMain() returns nothing. */
#include <brazos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

BARDEC(together)
BARDEC(never)

static int run(int id) {
    char **argv = NULL;
    const int words = brazos_arguments(&argv), who = words > 2 ? atoi(argv[2]) : 0;
    const int status = words > 3 ? atoi(argv[3]) : 0;
    const int threads = brazos_threads();
    if (words > 1 && strcmp(argv[1], "sizes") == 0) (void)G_MALLOC_ALL(1000000 * (id + 1));
    BARRIER(together, threads)
    if (id == (who < 0 ? threads + who : who)) {
        printf("ends\n");
        fflush(stdout);
        if (words > 1 && strcmp(argv[1], "exit") == 0) exit(status);
        return status;
    }
    /* Where nothing is wrong all come to their end; else somebody's wait would never end by itself. */
    if (status != 0) BARRIER(never, threads)
    return 0;
}

#ifdef BRAZOS_VOID_USERMAIN
void UserMain(int GlobalId, int LocalId) {
    (void)LocalId;
    (void)run(GlobalId);
}
#else
int UserMain(int GlobalId, int LocalId) {
    (void)LocalId;
    return run(GlobalId);
}
#endif
