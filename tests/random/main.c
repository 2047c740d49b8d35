/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * random: a random program without data races, which knows what it must read. See random.h for how it works, and
 * README.md for how it is run.
 */
#include "random.h"

#include <sys/mman.h>

enum { PARTS_MAX = 3, OPERANDS = 40 };

int64_t seed = 1, phases = 100;
enum engine job_engine;
int mixed;

static int64_t kinds_used = -1, regions_used = -1, features = -1, write_from, end = NEVER;
static int show;
static thread all_threads[THREADS_MAX]; /* of this node */
static pthread_barrier_t of_node;
static int part, first_phase, last_phase; /* which part of the program runs, and its phases: [first, last) */

int has(int feature) {
    return (features & feature) != 0;
}
int wanted(const region *r) {
    return (regions_used >> r->number & 1) && (kinds_used >> r->kind & 1);
}
int nodes(void) {
    return comem_nodes();
}
int threads(void) {
    return comem_threads();
}

/* ---- what ends a phase ------------------------------------------------------------------------------------------ */

static int64_t operand(const thread *self, int who, int place) {
    dice d = dice_for("operand", self->phase, who * OPERANDS + place);
    return (int64_t)(draw(&d) >> 8);
}

static int64_t reduced(const thread *self, int operation, int place) {
    int64_t result = operand(self, 0, place);
    for (int t = 1; t < threads(); t++) {
        const int64_t next = operand(self, t, place);
        if (operation == COMEM_SUM) result += next;
        if (operation == COMEM_MIN && next < result) result = next;
        if (operation == COMEM_MAX && next > result) result = next;
    }
    return result;
}

static void reduce_integers(const thread *self, int operation, int count) {
    int64_t values[OPERANDS];
    for (int i = 0; i < count; i++) values[i] = operand(self, self->number, i);
    comem_reduce_i64(operation, values, (size_t)count);
    for (int i = 0; i < count; i++) {
        const int64_t due = reduced(self, operation, i);
        if (values[i] != due) report(self, "reduction", NULL, (uint64_t)i, NULL, (uint64_t)values[i], (uint64_t)due);
    }
}

static void reduce_doubles(const thread *self) {
    double sum = (double)(operand(self, self->number, 0) % 1000), due = 0;
    for (int t = 0; t < threads(); t++) due += (double)(operand(self, t, 0) % 1000);
    comem_reduce_f64(COMEM_SUM, &sum, 1);
    if (sum != due) report(self, "reduction of doubles", NULL, 0, NULL, (uint64_t)sum, (uint64_t)due);
}

void end_phase(const thread *self) {
    dice d = dice_for("end", self->phase, 0);
    const int way = has(REDUCTIONS) ? roll_int(&d, 12) : 0;
    const int operation = roll_int(&d, 3), count = 1 + roll_int(&d, OPERANDS);
    uint64_t low, high;
    switch (way) {
    case 1:
    case 2: reduce_integers(self, operation, count); break;
    case 3: reduce_doubles(self); break;
    case 4: comem_split_weighted(1000, &low, &high); break;
    case 5: comem_barrier(); comem_rendezvous(); break;
    default: comem_barrier();
    }
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

/* Whether the phase uses the region. There are quiet phases, and regions with quiet times. */
static int is_used(const thread *self, const region *r, int quiet) {
    dice window = dice_for("window", self->phase / r->window, r->number);
    dice d = dice_for("quiet", self->phase, r->number);
    if (!lives(r, self->phase) || roll_int(&window, 100) >= r->percent) return 0;
    return !quiet || one_in(&d, 4);
}

static void use_by_kind(thread *self, const region *r) {
    switch (r->kind) {
    case LOCKS:
    case READERS:
    case SEMAPHORES: use_records(self, r); break;
    case QUEUE: use_queue(self, r); break;
    case BROADCAST: use_broadcast(self, r); break;
    case RING: use_ring(self, r); break;
    case PIPES: use_pipes(self, r); break;
    case MEETINGS: use_meetings(self, r); break;
    case SIGNS: use_signs(self, r); break;
    case ATOMICS: use_atomics(self, r); break;
    default: write_by_owners(self, r);
    }
}

static void use_region(thread *self, const region *r) {
    dice d = dice_for("use", self->phase, r->number);
    const int read = one_in(&d, 4), by_owners = one_in(&d, 4);
    pause_maybe(blend(draw(&d), (uint64_t)self->number));
    if (read || !may_write(r, self->phase) || self->phase < write_from) {
        read_region(self, r);
    } else if (by_owners && r->kind >= BROADCAST && r->kind <= MEETINGS) {
        write_by_owners(self, r);
    } else {
        use_by_kind(self, r);
    }
}

static void run_phase(thread *self) {
    dice d = dice_for("phase", self->phase, 0);
    const int first = roll_int(&d, region_count), quiet = one_in(&d, 4);
    change_lives(self, &of_node);
    for (int i = 0; i < region_count; i++) {
        const region *r = &regions[(first + i) % region_count];
        if (is_used(self, r, quiet)) use_region(self, r);
    }
    use_blocks(self);
    use_arrays(self, part);
    end_phase(self);
}

static thread *self_of_node(void) {
    return &all_threads[comem_thread() % comem_threads_per_node()];
}

static void run_phases(void *unused) {
    (void)unused;
    thread *self = self_of_node();
    self->number = comem_thread();
    for (self->phase = first_phase; self->phase < last_phase; self->phase++) run_phase(self);
}

static void check_everything(void *unused) {
    (void)unused;
    thread *self = self_of_node();
    for (int i = 0; i < region_count; i++) {
        if (lives(&regions[i], last_phase)) check_all(self, "in the end", &regions[i]);
    }
    check_blocks(self);
    check_arrays(self);
    comem_barrier();
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void prepare_threads(void) {
    const int count = comem_threads_per_node();
    if (count > THREADS_MAX) refuse("random", "more threads on a node than it is made for");
    pthread_barrier_init(&of_node, NULL, (unsigned)count);
    for (int t = 0; t < count; t++) {
        all_threads[t].file = memfd_create("random", 0);
        for (int i = 0; i < region_count; i++) {
            if (wanted(&regions[i])) all_threads[t].model[i] = calloc(1, regions[i].size);
        }
    }
}

/* The phases, in up to three calls of comem_parallel(). */
static void run_parts(void) {
    dice d = dice_for("parts", 0, 0);
    const int parts = 1 + roll_int(&d, PARTS_MAX);
    for (part = 0; part < parts && last_phase < end; part++) {
        first_phase = last_phase;
        last_phase = (int)phases * (part + 1) / parts;
        if (last_phase > end) last_phase = (int)end;
        create_arrays(part, all_threads, comem_threads_per_node());
        comem_parallel(run_phases, NULL);
    }
    comem_parallel(check_everything, NULL);
}

static void read_engine(void) {
    const char *name = getenv("COMEM_ENGINE");
    job_engine = HLRC;
    if (name && strcmp(name, "scope") == 0) job_engine = SCOPE;
    if (name && strcmp(name, "msi") == 0) job_engine = MSI;
    if (name && strcmp(name, "lrc") == 0) job_engine = LRC;
    if (name && strcmp(name, "multicast") == 0) job_engine = MULTICAST;
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--seed", &seed, NULL, NULL, "which program"},
        {"--phases", &phases, NULL, NULL, "how many phases"},
        {"--mixed", NULL, NULL, &mixed, "regions under several engines"},
        {"--kinds", &kinds_used, NULL, NULL, "use these kinds of regions alone (bits)"},
        {"--regions", &regions_used, NULL, NULL, "use these regions alone (bits)"},
        {"--features", &features, NULL, NULL, "do these things besides (bits)"},
        {"--write-from", &write_from, NULL, NULL, "the first phase that writes"},
        {"--end", &end, NULL, NULL, "the first phase that is left out"},
        {"--show", NULL, NULL, &show, "say which regions there are"},
    };
    read_options(argc, argv, options, COUNT_OF(options));
    read_engine();
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 3;
    if (phases < 1 || phases > 1000000) refuse("random", "--phases takes 1 to 1000000");
    choose_regions();
    if (show && comem_node() == 0) show_regions();
    prepare_threads();
    allocate_first();
    allocate_blocks();
    run_parts();
    if (comem_node() == 0) printf("random seed=%" PRId64 " phases=%" PRId64 "%s\n", seed, phases, wrong ? "" : " ok");
    const int ended = comem_finish();
    return wrong ? ENDED_WRONG : ended;
}
