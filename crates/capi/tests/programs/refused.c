/* The system refuses the table of what nodes of one host may copy of each other's memory. Node 0 writes a value into a
 * page and takes it back before anybody is told of it; node 1 fetches the page between the two, for another word, and
 * must not get that value. The argument is a file of a page, by which the two meet without Comem. */
#define _GNU_SOURCE
#include <comem.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EPOCHS = 12, PAGES = 512, WORDS = 512, WRITTEN = 8 };

static long *memory;
/* Node 0 has written; node 1 has fetched. */
static struct meeting {
    sem_t written, fetched;
} *meeting;
static _Atomic int refused, wrong;

/* In front of the C library's. */
int memfd_create(const char *name, unsigned flags) {
    if (strstr(name, "offers") != NULL) {
        refused++;
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}

static void expect(long found, long value, const char *what) {
    if (found == value) return;
    fprintf(stderr, "refused: node %d: %s: %ld instead of %ld\n", comem_node(), what, found, value);
    wrong = 1;
}

/* A page that node 0 writes in each epoch, while node 2 holds a copy: so its home begins to compare it. */
static void write_again_and_again(void) {
    for (long epoch = 1; epoch <= EPOCHS; epoch++) {
        if (comem_node() == 0) memory[WRITTEN] = epoch;
        comem_barrier();
        if (comem_node() == 2) expect(memory[WRITTEN], epoch, "written in this epoch");
        comem_barrier();
    }
}

static void work(void *unused) {
    (void)unused;
    write_again_and_again();
    if (comem_node() == 0) {
        memory[WRITTEN] = -1;
        sem_post(&meeting->written);
        sem_wait(&meeting->fetched);
        memory[WRITTEN] = EPOCHS;
    } else if (comem_node() == 1) {
        sem_wait(&meeting->written);
        expect(memory[0], 0, "never written");
        sem_post(&meeting->fetched);
    }
    comem_barrier();
    expect(memory[WRITTEN], EPOCHS, "written and taken back");
    comem_barrier();
}

int main(int argc, char **argv) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    int file = argc > 1 ? open(argv[1], O_RDWR) : -1;
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (meeting == MAP_FAILED) return perror("refused"), 1;
    if (comem_node() == 0) {
        if (sem_init(&meeting->written, 1, 0) != 0 || sem_init(&meeting->fetched, 1, 0) != 0) return 1;
    }
    comem_region_options options = {.home = COMEM_HOME_ON, .home_number = 0};
    memory = comem_alloc_all(PAGES * WORDS * sizeof *memory, &options);
    if (memory == NULL) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    comem_parallel(work, NULL);
    if (comem_finish() != 0 || wrong) return 1;
    /* Without a detector that needs the table nothing was refused. */
    printf("refused: ok%s\n", refused ? "" : ", and nothing was");
    return 0;
}
