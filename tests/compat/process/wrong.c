/* The process model when something is wrong. Argument: what. */
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS, RTLD_NEXT */
#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <comem.h>

#include "comem_parmacs.h"

#ifndef WITHOUT_MAIN_ENV
COMEM_PROCESS_CONSTRUCTOR_
#endif

static long *shared;
static long *private_thing;
static char *argument;
static void **inside;
struct {
    int before;
    long *inner;
} record;
void *large, *mapped;
struct {
    void *library, *thread, *shared, *own, *text, *name;
} fine;
static int *of_later;
static _Thread_local int thread_local_number;

static void nothing(void) {}
static void wait_for_ever(void) { comem_pause_wait(1); }
static void create_another(void) { comem_create_worker(nothing); }
static void other_number(void) { comem_barrier_of(5, 3); }
static void exits_with_5(void) {
    printf("printed before the exit\n");
    exit(5);
}
static struct comem_counter loop;
static void deals_out(void) {
    while (comem_getsub(&loop, 9, 2) >= 0) comem_parmacs_lock(1), ++*shared, comem_parmacs_unlock(1);
}

/* As a shared library would call it. */
static void exits_by_library(void) { ((void (*)(int))dlsym(RTLD_NEXT, "exit"))(0); }

/* As iconv does, or the look-up of a name: a library comes into the process of main alone. */
static void load_a_library(void) {
    void *library = dlopen(getenv("COMEM_TEST_LATER"), RTLD_NOW);
    if (library != 0) of_later = (int *)dlsym(library, "of_later");
    if (of_later == 0 || *of_later != 5) printf("the library is not there: %s\n", dlerror());
}

static void follow(void) { printf("%ld %s\n", *private_thing, argument); }

/* Waits for a plain variable, which under hlrc never changes here; gives up in the end, so that the job does. */
static void spin(void) {
    uint64_t since = comem_clock_us();
    while (*(volatile long *)shared == 0 && comem_clock_us() - since < 13000000) continue;
    comem_barrier_of(5, 2);
}

static void fork_and_look(void) {
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (comem_worker_slot() == 0) printf("a child may print\n");
        fflush(stdout);
        exit(0); /* ends the child alone */
    }
    waitpid(child, &status, 0);
    if (status != 0) printf("the child's status is %d\n", status);
    child = fork();
    if (child == 0) {
        shared[0] = 1; /* which a child does not have */
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status == 0) printf("the child has written\n");
}

/* A child of a worker, which shares its slot: neither its exit nor its lock is the worker's. */
static void fork_and_lock(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) exit(0);
    waitpid(child, &status, 0);
    if (status != 0) printf("the first child's status is %d\n", status);
    child = fork();
    if (child == 0) {
        comem_parmacs_lock(1);
        printf("the child has the lock\n");
        exit(0);
    }
    waitpid(child, &status, 0);
    comem_parmacs_lock(1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) printf("the second child's status is right\n");
    comem_parmacs_unlock(1);
}

/* Each worker of two says where it is. */
static void says_its_slot(void) { printf("worker in slot %d\n", comem_worker_slot()); }
static void takes(void *argument) { printf("worker with %ld\n", (long)argument); }
static long own_variable;
static void adds_to_its_own(void) { comem_splash4_fetch_add(own_variable, 1); }
static void adds_askew(void) { comem_splash4_fetch_add(*(long *)((char *)shared + 4), 1); }
struct wide {
    long words[2];
};
static void loads_too_much(void) { (void)comem_splash4_load(*(struct wide *)shared); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int i;
    if (strcmp(what, "lock") == 0) comem_parmacs_lock(1);
    shared = (long *)comem_g_malloc(sizeof *shared);
    if (strcmp(what, "many") == 0)
        for (i = 0; i < 300; i++) comem_create_worker(wait_for_ever);
    if (strcmp(what, "nested") == 0) comem_create_worker(create_another);
    if (strcmp(what, "wait") == 0) {
        comem_create_worker(nothing);
        comem_wait_workers(3);
    }
    if (strcmp(what, "numbers") == 0) {
        comem_create_worker(other_number);
        comem_barrier_of(5, 4);
    }
    if (strcmp(what, "crowd") == 0) comem_barrier_of(5, 100000);
    if (strcmp(what, "fewer") == 0) comem_barrier_of(5, -1);
    if (strcmp(what, "nobody") == 0) comem_barrier_of(5, 0);
    if (strcmp(what, "worker") == 0) comem_create_worker(exits_with_5);
    if (strcmp(what, "counter") == 0) {
        comem_create_workers(deals_out, 2);
        printf("%ld subscripts\n", *shared);
    }
    if (strcmp(what, "library") == 0) comem_create_worker(exits_by_library);
    if (strcmp(what, "busy") == 0) {
        comem_create_worker(wait_for_ever);
        exit(9);
    }
    if (strcmp(what, "null") == 0) comem_create_worker(0);
    if (strcmp(what, "both") == 0 || strcmp(what, "both, unawaited") == 0 || strcmp(what, "both meet") == 0 ||
        strcmp(what, "both late") == 0) {
        comem_create_worker(says_its_slot);
        comem_create_worker(says_its_slot);
        if (strcmp(what, "both meet") == 0) comem_barrier_of(5, 3);
        if (strcmp(what, "both, unawaited") == 0) return 0;
        if (strcmp(what, "both late") == 0) sleep(11);
        comem_wait_workers(1);
    }
    if (strcmp(what, "stack argument") == 0) comem_create_worker_with(takes, &argv);
    if (strcmp(what, "heap argument") == 0) comem_create_worker_with(takes, malloc(64));
    if (strcmp(what, "number argument") == 0) comem_create_worker_with(takes, (void *)-7L);
    if (strcmp(what, "own variable") == 0) comem_splash4_store(own_variable, 5); /* before there are workers */
    if (strcmp(what, "own variable") == 0) comem_create_worker(adds_to_its_own);
    if (strcmp(what, "askew") == 0) comem_create_worker(adds_askew);
    if (strcmp(what, "too wide") == 0) comem_create_worker(loads_too_much);
    if (strcmp(what, "much") == 0) {
        memset(comem_g_malloc(80 << 20), 1, 80 << 20);
        comem_create_worker(nothing);
    }
    if (strcmp(what, "later") == 0) {
        load_a_library();
        comem_create_worker(nothing);
    }
    if (strcmp(what, "spin") == 0) {
        shared[0] = 0; /* touched before there are workers, so its home is not the worker's node */
        comem_create_worker(spin);
        sleep(1);
        shared[0] = 1;
        comem_barrier_of(5, 2);
    }
    if (strcmp(what, "fork") == 0) {
        fork_and_look();
        printf("ended\n");
        return 0;
    }
    if (strcmp(what, "worker's child") == 0) comem_create_worker(fork_and_lock);
    if (strcmp(what, "pointers") == 0) {
        private_thing = (long *)malloc(sizeof *private_thing);
        record.inner = (long *)malloc(64);
        inside = (void **)comem_g_malloc(5000 * sizeof *inside);
        inside[3] = malloc(64);
        inside[4000] = &inside[3];
        argument = argv[1];
        large = malloc(80000000);
        mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fine.library = stdout;
        fine.thread = &thread_local_number;
        fine.shared = shared;
        fine.own = &record;
        fine.text = (void *)(size_t)main;
        fine.name = setlocale(LC_ALL, 0);
        comem_create_worker(private_thing == 0 ? follow : nothing);
        /* A second one finds what Comem keeps for the first. */
        if (comem_nodes() > 2) {
            comem_create_worker(nothing);
            comem_wait_workers(1);
        }
    }
    comem_wait_workers(1);
    printf("ended\n");
    return 0;
}
