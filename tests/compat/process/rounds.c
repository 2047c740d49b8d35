/* The process model as a program meets it when all goes well. Arguments: a scenario, how many processes. The last line
 * is "ended" and the only other ones say what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comem_parmacs.h"

COMEM_PROCESS_CONSTRUCTOR_

#define NAME(place) ((uint64_t)(uintptr_t)(place))
#define CHECK(condition, ...)                                                                                        \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            printf("wrong in line %d: ", __LINE__);                                                                  \
            printf(__VA_ARGS__);                                                                                     \
            printf("\n");                                                                                            \
        }                                                                                                            \
    } while (0)

enum { CELLS = 5000, PIECES = 3000 };

struct shared {
    long counter;
    long sum;
    long seen[256];
    long taken[CELLS];
    struct comem_counter loop;
    long cells[CELLS];
    void *pieces[PIECES];
};

static struct shared *global;
static long processes = 1;
static double table[100000];       /* zero but for what main writes */
static char words[] = "as it was"; /* initialised */
static FILE *out;                  /* the C library's own */
char unused[300 << 20];            /* never touched; anybody might write to it, as far as the compiler knows */
static long changing;
static struct shared *set_late;
static struct {
    int of_main, of_worker; /* two halves of a word */
} pair = {1, 2};
static int initialised[4000] = {5};
long common_one;

static long number(void) {
    long me;
    comem_parmacs_lock(NAME(&global->counter));
    me = global->counter++;
    comem_parmacs_unlock(NAME(&global->counter));
    return me;
}

static void one_more(void) { number(); }

static void run(void (*work)(void)) {
    global->counter = 0;
    comem_create_workers(work, (int)processes);
    comem_wait_workers((int)processes);
    CHECK(global->counter == processes, "%ld of %ld processes have counted", global->counter, processes);
}

/* ---- rounds: globals at CREATE, shared memory in both directions, barriers ---- */

static void round_of_work(void) {
    long me = number(), i;
    CHECK(strcmp(words, "as it is") == 0, "words are \"%s\"", words);
    CHECK(table[77777] == 7.5 && common_one == 41 && out == stdout, "other globals");
    CHECK(comem_worker_slot() == 0 || comem_slot_node(comem_worker_slot()) == 0 || table[5] == 0, "not reset");
    for (i = me; i < CELLS; i += processes) global->cells[i] = me + 1;
    comem_barrier_of(NAME(&global->cells), (unsigned)processes);
    for (i = 0; i < CELLS; i++)
        CHECK(global->cells[i] == i % processes + 1, "cell %ld is %ld", i, global->cells[i]);
    comem_parmacs_lock(7);
    global->sum += me;
    comem_parmacs_unlock(7);
    comem_barrier_of(NAME(&global->sum), (unsigned)processes);
    CHECK(global->sum == processes * (processes - 1) / 2, "the sum is %ld", global->sum);
    table[5] = 1;
}

static void rounds(void) {
    int round;
    for (round = 0; round < 3; round++) {
        global = (struct shared *)comem_g_malloc(sizeof *global);
        CHECK(global->sum == 0, "memory is not zero at first");
        strcpy(words, "as it is");
        table[77777] = 7.5;
        table[5] = 0;
        common_one = 41;
        run(round_of_work);
        comem_g_free(global);
    }
}

/* ---- between: each worker alone on its node sees the globals as they stood at its own CREATE ---- */

static void note_changing(void) { global->seen[comem_worker_slot()] = changing; }

static void between(void) {
    long i;
    int round;
    for (round = 0; round < 2; round++) {
        for (i = 1; i < processes; i++) {
            changing = 10 * i + round;
            comem_create_worker(note_changing);
        }
        comem_wait_workers((int)processes - 1);
        for (i = 1; i < processes; i++)
            CHECK(global->seen[i] == 10 * i + round, "worker %ld saw %ld", i, global->seen[i]);
    }
}

/* ---- late: main changes globals while a worker of the node is at work, and creates another one there ---- */

enum { BEGUN = 96, SEEN = 97, GO_ON = 98 };

static void check_late(void) {
    CHECK(set_late == global, "a pointer that was set late is %p", (void *)set_late);
    CHECK(pair.of_main == 10 && pair.of_worker == 20, "the pair is %d and %d", pair.of_main, pair.of_worker);
    CHECK(initialised[0] == 5 && initialised[3500] == 6, "%d and %d", initialised[0], initialised[3500]);
    CHECK(table[50000] == 2.5 && table[70000] == 0, "%g and %g", table[50000], table[70000]);
    number();
}

static void early_one(void) {
    CHECK(set_late == 0 && pair.of_main == 1 && table[70000] == 3, "not as at CREATE");
    pair.of_worker = 20;
    comem_pause_set(BEGUN);
    comem_pause_take(GO_ON);
    check_late(); /* its node's variables are the later one's too */
}

static void late_one(void) {
    check_late();
    comem_pause_set(SEEN);
}

/* `processes` workers come first, so that the next two have a node of their own. */
static void late(void) {
    long i;
    table[70000] = 3;
    for (i = 0; i < processes; i++) comem_create_worker(one_more);
    comem_create_worker(early_one);
    comem_pause_take(BEGUN);
    set_late = global;
    pair.of_main = 10;
    initialised[3500] = 6;
    table[50000] = 2.5;
    table[70000] = 0;
    comem_create_worker(late_one);
    comem_pause_take(SEEN);
    comem_pause_set(GO_ON);
    comem_wait_workers((int)processes + 2);
    CHECK(global->counter == processes + 2, "%ld have counted", global->counter);
}

/* ---- loops: GETSUB hands out each subscript once, again and again ---- */

static void take_all(void) {
    long round, i;
    number();
    for (round = 1; round <= 3; round++) {
        while ((i = comem_getsub(&global->loop, 199, (unsigned)processes)) >= 0) global->taken[i]++;
        comem_barrier_of(3, (unsigned)processes);
        for (i = 0; i < 201; i++)
            CHECK(global->taken[i] == (i < 200 ? round : 0), "subscript %ld was handed out %ld times", i,
                  global->taken[i]);
        comem_barrier_of(4, (unsigned)processes);
    }
}

static void loops(void) { run(take_all); }

/* ---- pauses: as many go through as were set ---- */

static void pass_on(void) {
    long me = number();
    comem_pause_wait(NAME(&global->seen[me]));
    comem_pause_wait(NAME(&global->seen[me]));
    global->sum += me + 1; /* one after the other: the pauses order them */
    comem_pause_set(NAME(&global->seen[(me + 1) % processes]));
    comem_pause_set(NAME(&global->seen[(me + 1) % processes]));
}

static void pauses(void) {
    comem_pause_set(NAME(&global->seen[0]));
    comem_pause_set(NAME(&global->seen[0]));
    run(pass_on);
    CHECK(global->sum == processes * (processes + 1) / 2, "the sum is %ld", global->sum);
    comem_pause_clear(NAME(&global->seen[0]));
    comem_pause_set(NAME(&global->seen[0]));
    comem_pause_wait(NAME(&global->seen[0]));
}

/* ---- cleared: what was set before a barrier is there after it, to be cleared, or to be forgotten ---- */

/* A semaphore's try, which says whether there was one to take. */
extern int comem_sem_trywait(uint64_t semaphore);

static void set_and_clear(void) {
    enum { ROUNDS = 4, PAUSES = 32 };
    long me = number(), round, i;
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; me == 0 && i < PAUSES; i++) comem_pause_set(NAME(&global->cells[i]));
        comem_barrier_of(9, (unsigned)processes);
        for (i = 0; me == processes - 1 && i < PAUSES; i++)
            CHECK(comem_sem_trywait(NAME(&global->cells[i])) == 1, "pause %ld, set before a barrier, is not there", i);
        comem_barrier_of(10, (unsigned)processes);
    }
}

static void cleared(void) { run(set_and_clear); }

/* ---- deep: workers that end by exit(0) with much on their stacks, round after round ---- */

static void exit_from_deep(void) {
    volatile char frame[3 << 20];
    size_t i;
    for (i = 0; i < sizeof frame; i += 4096) frame[i] = 1;
    number();
    if (comem_worker_slot() > 0) exit(frame[0] - 1);
}

static void deep(void) {
    int round;
    for (round = 0; round < 8; round++) run(exit_from_deep);
}

/* ---- pieces: thousands of small allocations, freed by another process, used again, never overlapping ---- */

static void allocate_and_free(void) {
    long me = number(), i, round;
    for (round = 1; round <= 3; round++) {
        for (i = me; i < PIECES; i += processes) {
            size_t size = 8 + (size_t)(i * 37 % 3000);
            long *piece = (long *)comem_g_malloc(size);
            size_t word;
            CHECK((uintptr_t)piece % 64 == 0, "a piece at %p", (void *)piece);
            for (word = 0; word < size / sizeof *piece; word++) {
                CHECK(piece[word] == 0, "a new piece is not zero");
                piece[word] = i * round;
            }
            global->pieces[i] = piece;
        }
        comem_barrier_of(5, (unsigned)processes);
        for (i = 0; i < PIECES; i++) {
            long *piece = (long *)global->pieces[i];
            size_t words_of = (8 + (size_t)(i * 37 % 3000)) / sizeof *piece;
            CHECK(piece[0] == i * round && piece[words_of - 1] == i * round, "piece %ld holds %ld", i, piece[0]);
        }
        comem_barrier_of(6, (unsigned)processes);
        for (i = (me + 1) % processes; i < PIECES; i += processes) comem_g_free(global->pieces[i]);
        comem_barrier_of(8, (unsigned)processes);
    }
}

static void pieces(void) { run(allocate_and_free); }

/* ---- part: some of the workers are waited for, and their slots used again ---- */

static void wait_long(void) {
    comem_pause_wait(99);
    number();
}

static void part(void) {
    int i;
    comem_create_worker(wait_long);
    for (i = 0; i < 20; i++) {
        comem_create_worker(one_more);
        comem_wait_workers(1);
    }
    CHECK(global->counter == 20, "%ld have counted", global->counter);
    comem_pause_set(99);
    comem_wait_workers(1);
    CHECK(global->counter == 21, "%ld have counted", global->counter);
}

/* ---- leave: a worker that calls exit(0) has ended; main's exit status is the job's ---- */

/* Called like this, no macro of a header can have a part in it. */
static struct {
    void (*exit)(int);
} by_pointer = {exit};

static void call_exit(void) {
    number();
    printf("leaving\n");
    if (comem_worker_slot() > 2) exit(0);
    if (comem_worker_slot() > 0) by_pointer.exit(0);
}

static void leave(void) {
    run(call_exit);
    run(call_exit);
    printf("ended\n");
    exit(7);
}

/* ---- small: what nobody touches costs nothing ---- */

static void look_at_size(void) {
    struct rusage usage;
    number();
    getrusage(RUSAGE_SELF, &usage);
    CHECK(usage.ru_maxrss < 150 << 10, "%ld KiB are resident", usage.ru_maxrss);
}

static void small(void) { run(look_at_size); }

/* ---- zeros: what main has read, or written zeros to, is not shipped; what it had written before is zero again ---- */

enum { PAGE = 4096 };

static void look_for_zeros(void) {
    int alone = comem_slot_node(comem_worker_slot()) != 0;
    CHECK(unused[7 * PAGE] == (changing == 1) && unused[100 << 20] == 0, "not as at CREATE");
    CHECK(!alone || unused[9 * PAGE] == 0, "not reset");
    if (alone) unused[9 * PAGE] = 1;
    number();
}

static void zeros(void) {
    size_t i;
    long sum = 0;
    memset(unused, 0, 32 << 20);
    for (i = 32 << 20; i < 64 << 20; i += PAGE) sum += unused[i];
    CHECK(sum == 0, "the sum is %ld", sum);
    for (changing = 1; changing <= 2; changing++) {
        unused[7 * PAGE] = changing == 1;
        run(look_for_zeros);
    }
}

/* ---- costs: 1000 barriers of all, 5000 pieces, 5000 pauses that begin before there are workers ---- */

static void meet_often(void) {
    int i;
    number();
    for (i = 0; i < 1000; i++) comem_barrier_of(1, (unsigned)processes);
    for (i = 0; i < 5000; i++) comem_g_malloc(200);
}

static void costs(void) {
    int i;
    for (i = 0; i < CELLS; i++) comem_pause_init(NAME(&global->cells[i]));
    run(meet_often);
}

int main(int argc, char **argv) {
    const char *scenario = argc > 1 ? argv[1] : "rounds";
    if (argc > 2) processes = atol(argv[2]);
    out = stdout;
    global = (struct shared *)comem_g_malloc(sizeof *global);
    if (strcmp(scenario, "rounds") == 0) rounds();
    if (strcmp(scenario, "between") == 0) between();
    if (strcmp(scenario, "late") == 0) late();
    if (strcmp(scenario, "loops") == 0) loops();
    if (strcmp(scenario, "pauses") == 0) pauses();
    if (strcmp(scenario, "cleared") == 0) cleared();
    if (strcmp(scenario, "deep") == 0) deep();
    if (strcmp(scenario, "pieces") == 0) pieces();
    if (strcmp(scenario, "part") == 0) part();
    if (strcmp(scenario, "leave") == 0) leave();
    if (strcmp(scenario, "small") == 0) small();
    if (strcmp(scenario, "zeros") == 0) zeros();
    if (strcmp(scenario, "costs") == 0) costs();
    printf("ended%s\n", unused[12345] ? "?" : "");
    return 0;
}
