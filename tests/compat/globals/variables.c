/* Global variables as shared memory: programs with one right answer each, chosen by name. Every process runs main();
 * each thread writes its own part of the variables, and all check all of it. Says `ok` last, on node 0. */
#define _GNU_SOURCE
#include "variables.h"
#include "comem.h"
#include "comem_globals.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int answer = 42;
const char *words[2] = {"one", "two"};
unsigned char bytes_of[64 * THREADS_MAX];
long counter;
long taken[THREADS_MAX * ROUNDS];
char line[4096];
char text[3 * 4096];
static int ran_before_main;
/* A constant, which no script makes a variable. */
static const char *const constants[2] = {"one", "two"};
/* Private to each process: no global. */
static __thread int node;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so on node %d: %s\n", __FILE__, __LINE__, node, #what);                \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* What each process had before is node 0's afterwards. */
__attribute__((constructor)) static void before_main(void) {
    const char *node = getenv("COMEM_NODE");
    ran_before_main = 1 + (node ? atoi(node) : 0);
    *hidden() += ran_before_main;
}

static void initial_values(void) {
    CHECK(answer == 42 && pairs[1].letter == 'b' && pairs[2].number == 3.5);
    CHECK(strcmp(words[1], "two") == 0 && points_to_answer == &answer);
    CHECK(table[0] == 1 && table[3000] == 3001 && table[5999] == 6000 && table[2999] == 0);
    CHECK(ran_before_main == 1 && *hidden() == 18);
    CHECK((char *)constants < __comem_globals_start || (char *)constants >= __comem_globals_end);
    CHECK(strcmp(constants[table[0]], "two") == 0);
    for (int i = 0; i < THREADS_MAX; i++)
        CHECK(sums[i] == 0 && bytes_of[64 * i] == 0);
}

/* Each thread has every so-and-so-manieth byte, and one word. */
static void neighbours(void) {
    size_t threads = (size_t)comem_threads(), me = (size_t)comem_thread();
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (size_t i = me; i < sizeof bytes_of; i += threads)
            bytes_of[i] = (unsigned char)(i * round);
        sums[me] += round * (me + 1);
        comem_barrier();
        for (size_t i = 0; i < sizeof bytes_of; i++)
            CHECK(bytes_of[i] == (unsigned char)(i * round));
        for (size_t i = 0; i < threads; i++)
            CHECK(sums[i] == (uint64_t)round * (round + 1) / 2 * (i + 1));
        comem_barrier();
    }
}

/* Each thread has a cache line of a page: the report of false sharing names the variable. */
static void apart(void) {
    size_t me = (size_t)comem_thread();
    for (unsigned char round = 1; round <= 5; round++) {
        bytes_of[64 * me] = round;
        comem_barrier();
        for (size_t i = 0; i < (size_t)comem_threads(); i++)
            CHECK(bytes_of[64 * i] == round);
        comem_barrier();
    }
}

static void in_turns(void) {
    for (int round = 0; round < ROUNDS; round++) {
        comem_lock(7);
        long next = counter++;
        taken[next] = next * next;
        comem_unlock(7);
    }
    comem_barrier();
    CHECK(counter == (long)comem_threads() * ROUNDS);
    for (long i = 0; i < counter; i++)
        CHECK(taken[i] == i * i);
}

static void check(void *nothing) {
    (void)nothing;
    initial_values();
    comem_barrier();
    apart();
    neighbours();
    in_turns();
    comem_barrier();
    /* A pointer to a global is the same everywhere. */
    if (comem_thread() == comem_threads() - 1)
        *points_to_answer = 43, points_to_answer = (int *)(void *)&sums[1], words[0] = words[1];
    comem_barrier();
    CHECK(answer == 43 && *points_to_answer == (int)sums[1] && strcmp(words[0], "two") == 0);
}

/* Kilobytes of this process's own and the memory files' pages that are in memory. */
static long resident_kb(void) {
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    char row[256];
    while (file && fgets(row, sizeof row, file))
        if (sscanf(row, "VmRSS: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* Of hundreds of megabytes a few pages are used: only they cost memory. (The network's bytes are in the statistics.) */
static void untouched(void *nothing) {
    (void)nothing;
    size_t step = BIG_BYTES / (size_t)comem_threads(), me = (size_t)comem_thread();
    big[me * step + 5] = (char)(me + 1);
    comem_barrier();
    for (size_t i = 0; i < (size_t)comem_threads(); i++)
        CHECK(big[i * step + 5] == (char)(i + 1) && big[i * step + 4] == 0);
    comem_barrier();
    CHECK(resident_kb() > 0 && resident_kb() < (long)(BIG_BYTES / 4 >> 10));
}

static int file_with(const char *content) {
    char path[] = "/tmp/comem-globals-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0);
    CHECK(write(file, content, strlen(content)) == (ssize_t)strlen(content) && lseek(file, 0, SEEK_SET) == 0);
    return file;
}

/* System calls of node 0 on variables that the last node wrote before, so that their pages are not here. */
static void input(void *nothing) {
    (void)nothing;
    const int first = comem_thread() == 0, last = comem_thread() == comem_threads() - 1;
    for (int round = 0; round < 3; round++) {
        if (last)
            memset(line, 'x', sizeof line), memset(text, 'y', sizeof text), answer = 0, counter = round;
        comem_barrier();
        if (first) {
            int file = file_with("37 hello and more\n");
            CHECK(dup2(file, 0) == 0 && close(file) == 0);
            if (round == 0) {
                CHECK(read(0, line, 2) == 2 && memcmp(line, "37xx", 4) == 0);
                CHECK(read(0, text + 4096, 6) == 6);
            } else if (round == 1) {
                CHECK(fseek(stdin, 0, SEEK_SET) == 0 && scanf("%d %15s", &answer, text + 4096) == 2 && answer == 37);
            } else {
                CHECK(fseek(stdin, 0, SEEK_SET) == 0 && fgets(text + 4096, 20, stdin) == text + 4096);
            }
            CHECK(text[4095] == 'y' && text[2 * 4096] == 'y');
        }
        comem_barrier();
        CHECK(strncmp(text + 4096, round == 0 ? " hello" : round == 1 ? "hello" : "37 hello", 5) == 0);
        CHECK(text[0] == 'y' && counter == round && line[100] == 'x');
        comem_barrier();
    }
    /* Out again, by another node. */
    if (last) {
        int pipe_of[2];
        char copy[sizeof line];
        CHECK(pipe(pipe_of) == 0 && write(pipe_of[1], line, sizeof line) == (ssize_t)sizeof line);
        CHECK(read(pipe_of[0], copy, sizeof copy) == (ssize_t)sizeof copy && memcmp(copy, line, sizeof copy) == 0);
    }
}

/* What the last thread writes is read by node 0 after the job. */
static void last_words(void *nothing) {
    (void)nothing;
    comem_barrier();
    if (comem_thread() == comem_threads() - 1) {
        answer = 99;
        strcpy(text + 4096, "last words");
        big[BIG_BYTES / 2] = 5;
    }
    for (int round = 0; round < 3; round++)
        comem_barrier();
}

static void at_exit(void) {
    if (node == 0 && answer != 100)
        _exit(1);
}

/* Children see the variables as they are, and can do nothing to them. */
static void children(void *nothing) {
    (void)nothing;
    if (comem_thread() == comem_threads() - 1)
        strcpy(line, "test 1 = 1");
    comem_barrier();
    if (comem_thread() == 0) {
        /* (exec is a system call that nobody wraps: its argument must have been looked at.) */
        CHECK(strlen(line) > 0 && system(line) == 0);
        pid_t child = fork();
        if (child == 0) {
            answer = 5;
            execl("/bin/sh", "sh", "-c", line, (char *)0);
            _exit(9);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(answer == 42);
    }
    comem_barrier();
    CHECK(answer == 42);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "check";
    if (comem_start() != 0)
        return 3;
    node = comem_node();
    comem_share_globals_(__comem_globals_start, __comem_globals_end);
    void (*const work)(void *) = strcmp(what, "untouched") == 0 ? untouched
                                 : strcmp(what, "input") == 0   ? input
                                 : strcmp(what, "after") == 0   ? last_words
                                 : strcmp(what, "fork") == 0    ? children
                                                                : check;
    comem_parallel(work, NULL);
    comem_finish();
    if (work == last_words && node == 0) {
        CHECK(answer == 99 && strcmp(text + 4096, "last words") == 0 && big[BIG_BYTES / 2] == 5);
        answer = 100;
        if (atexit(at_exit) != 0)
            return 4;
    }
    if (node == 0)
        puts("ok");
    return 0;
}
