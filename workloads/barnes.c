/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * barnes: bodies that attract one another, by a tree (J. Barnes, P. Hut, "A hierarchical O(N log N) force-calculation
 * algorithm", Nature 324, 1986; SPLASH's Barnes Hut; Brazos, section 4).
 *
 * Bodies lie in shared memory in the order in which they were made, and threads take them by where they are in space:
 * so the bodies of a page belong to several threads, which all write there. Synchronisation is by barriers alone. A
 * step has two:
 *   1. each thread moves its bodies; barrier;
 *   2. it copies the places of all bodies; barrier;
 *   3. it builds a tree of its own, finds which bodies are its own, as many as make about the same work for all, and
 *      computes their accelerations.
 *
 * Every tree is the same, and an acceleration is one thread's sum, so the result is the same, bit for bit, for any
 * number of threads. The bodies begin as a Plummer model, in units in which the constant of gravity and the total mass
 * are 1 and the energy is -1/4.
 */
#include "kernel.h"

enum {
    AXES = 3,
    KEY_BITS = 21, /* of each axis */
    LEAF_BODIES = 8,
    DIGIT_BITS = 11,
    STACK_MAX = 8 * KEY_BITS + 8,
    SEED = 1986,
    SAMPLES = 64
};

/* With as many pairs as that all energies are computed directly too. */
enum { PAIRS_CHECKED = 1 << 28 };

static const double SOFTENING = 0.02, STEP = 0.01, OUTERMOST = 20.0;
/* A cell stands for its bodies if it is farther away than its width by that factor; how far off accelerations may be
 * then, root mean square over samples. */
static const double OPENING = 0.7, ACCELERATION_ERROR = 0.01;

static int64_t body_count = 4096, steps = 4;

/* A body, in two cache lines; its work is how many bodies and cells its last acceleration took. */
typedef struct body {
    double at[AXES], mass;
    double velocity[AXES], potential;
    double acceleration[AXES];
    int64_t work;
    double unused[4];
} body;

/* A body as the tree has it. */
typedef struct place {
    double at[AXES], mass;
    uint64_t key;
    int64_t number, work;
} place;

/* A cube that holds places [low, high) in the order of their keys. Its cells, if any, lie one after the other. The
 * square of the distance from which it counts as one is `reach`. */
typedef struct cell {
    double at[AXES], mass, reach;
    double spread[6]; /* xx, xy, xz, yy, yz, zz: the second moments about its centre of mass */
    int64_t low, high, first_cell, cells;
} cell;

/* What a thread has of its own: places in order, the tree, and which of the places are its bodies. */
typedef struct own {
    place *places, *other;
    cell *tree;
    int64_t cells, low, high;
} own;

static body *shared;
static double energies[2]; /* of node 0: at the beginning and at the end */

/* ---- the tree -------------------------------------------------------------------------------------------------- */

/* Every third bit of the result is one of the coordinate's. */
static uint64_t spread_bits(uint64_t x) {
    x = (x | x << 32) & UINT64_C(0x001f00000000ffff);
    x = (x | x << 16) & UINT64_C(0x001f0000ff0000ff);
    x = (x | x << 8) & UINT64_C(0x100f00f00f00f00f);
    x = (x | x << 4) & UINT64_C(0x10c30c30c30c30c3);
    return (x | x << 2) & UINT64_C(0x1249249249249249);
}

/* Sorts places by their keys, digit by digit; equal ones stay in order. */
static void sort_places(own *self) {
    static const int digits = (3 * KEY_BITS + DIGIT_BITS - 1) / DIGIT_BITS;
    for (int digit = 0; digit < digits; digit++) {
        int64_t start[1 << DIGIT_BITS] = {0}, sum = 0;
        const int shift = digit * DIGIT_BITS;
        const uint64_t mask = (1 << DIGIT_BITS) - 1;
        for (int64_t i = 0; i < body_count; i++) start[self->places[i].key >> shift & mask]++;
        for (uint64_t d = 0; d <= mask; d++) {
            const int64_t count = start[d];
            start[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < body_count; i++) {
            self->other[start[self->places[i].key >> shift & mask]++] = self->places[i];
        }
        place *sorted = self->other;
        self->other = self->places;
        self->places = sorted;
    }
}

/* Puts places into the order of their keys: those of a cube that holds all; gives its width. */
KERNEL_HOT static double order_places(own *self) {
    double low[AXES], width = 0;
    for (int x = 0; x < AXES; x++) {
        double high = self->places[0].at[x];
        low[x] = high;
        for (int64_t i = 1; i < body_count; i++) {
            low[x] = fmin(low[x], self->places[i].at[x]);
            high = fmax(high, self->places[i].at[x]);
        }
        width = fmax(width, high - low[x]);
    }
    width = width > 0 ? width * (1 + 1e-9) : 1;
    for (int64_t i = 0; i < body_count; i++) {
        place *p = &self->places[i];
        p->key = 0;
        for (int x = 0; x < AXES; x++) {
            const double part = (p->at[x] - low[x]) / width * (double)(1 << KEY_BITS);
            p->key |= spread_bits((uint64_t)part) << (AXES - 1 - x);
        }
    }
    sort_places(self);
    return width;
}

/* The first place of [low, high) whose key has at least this value in the three bits above `shift`. */
static int64_t first_with(const own *self, int64_t low, int64_t high, int shift, uint64_t value) {
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((self->places[middle].key >> shift & 7) < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Adds a mass that stands away from a centre to the second moments about it. */
static void add_spread(double *spread, double mass, const double *d) {
    spread[0] += mass * d[0] * d[0], spread[1] += mass * d[0] * d[1], spread[2] += mass * d[0] * d[2];
    spread[3] += mass * d[1] * d[1], spread[4] += mass * d[1] * d[2], spread[5] += mass * d[2] * d[2];
}

/* Fills in the mass, centre and second moments of a cell whose cells are done; its width decides from where it counts
 * as one, and how far its centre of mass is from its middle, so that no body in a corner is missed. */
static void weigh(own *self, cell *c, double width) {
    const int64_t count = c->cells ? c->cells : c->high - c->low;
    for (int64_t i = 0; i < count; i++) {
        const double *at = c->cells ? self->tree[c->first_cell + i].at : self->places[c->low + i].at;
        const double mass = c->cells ? self->tree[c->first_cell + i].mass : self->places[c->low + i].mass;
        c->mass += mass;
        for (int x = 0; x < AXES; x++) c->at[x] += mass * at[x];
    }
    for (int x = 0; x < AXES; x++) c->at[x] /= c->mass;
    double farthest = 0;
    for (int64_t i = 0; i < count; i++) {
        const cell *inner = c->cells ? &self->tree[c->first_cell + i] : NULL;
        const place *p = c->cells ? NULL : &self->places[c->low + i];
        double d[AXES];
        for (int x = 0; x < AXES; x++) d[x] = (inner ? inner->at[x] : p->at[x]) - c->at[x];
        add_spread(c->spread, inner ? inner->mass : p->mass, d);
        for (int k = 0; inner && k < 6; k++) c->spread[k] += inner->spread[k];
    }
    for (int64_t i = c->low; i < c->high; i++) {
        double square = 0;
        for (int x = 0; x < AXES; x++) {
            const double d = self->places[i].at[x] - c->at[x];
            square += d * d;
        }
        farthest = fmax(farthest, square);
    }
    const double reach = fmax(width, sqrt(farthest)) / OPENING;
    c->reach = reach * reach;
}

/* Builds the cell with number `at` over its places and all cells below it; `shift` is where its keys' next bits are. */
KERNEL_HOT static void build(own *self, int64_t at, int shift, double width) {
    cell *c = &self->tree[at];
    if (c->high - c->low > LEAF_BODIES && shift >= 0) {
        c->first_cell = self->cells;
        for (uint64_t octant = 0; octant < 8; octant++) {
            const int64_t low = first_with(self, c->low, c->high, shift, octant);
            const int64_t high = first_with(self, low, c->high, shift, octant + 1);
            if (low == high) continue;
            self->tree[self->cells++] = (cell){.low = low, .high = high};
            c->cells++;
        }
        for (int64_t i = 0; i < c->cells; i++) build(self, c->first_cell + i, shift - 3, width / 2);
    }
    weigh(self, c, width);
}

static void build_tree(own *self) {
    const double width = order_places(self);
    self->tree[0] = (cell){.low = 0, .high = body_count};
    self->cells = 1;
    build(self, 0, 3 * (KEY_BITS - 1), width);
}

/* ---- accelerations --------------------------------------------------------------------------------------------- */

/* Adds the pull of a mass that stands `d` away. */
static inline void pull(const double *d, double square, double mass, body *b) {
    const double near = 1 / (square + SOFTENING * SOFTENING), root = sqrt(near), part = mass * root;
    b->potential -= part;
    for (int x = 0; x < AXES; x++) b->acceleration[x] += part * near * d[x];
}

/* Adds what a cell's bodies pull because they are not all in its centre. */
static inline void pull_spread(const double *d, double square, const double *m, body *b) {
    const double near = 1 / (square + SOFTENING * SOFTENING), fifth = near * near * sqrt(near);
    const double md[AXES] = {m[0] * d[0] + m[1] * d[1] + m[2] * d[2], m[1] * d[0] + m[3] * d[1] + m[4] * d[2],
                             m[2] * d[0] + m[4] * d[1] + m[5] * d[2]};
    const double trace = m[0] + m[3] + m[5], dmd = d[0] * md[0] + d[1] * md[1] + d[2] * md[2];
    b->potential -= 0.5 * fifth * (3 * dmd - trace * (square + SOFTENING * SOFTENING));
    for (int x = 0; x < AXES; x++) {
        b->acceleration[x] += fifth * (7.5 * dmd * near * d[x] - 3 * md[x] - 1.5 * trace * d[x]);
    }
}

/* The distance from a body to a point, axis by axis; gives its square. */
static inline double distance(const double *from, const double *to, double *d) {
    for (int x = 0; x < AXES; x++) d[x] = to[x] - from[x];
    return d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
}

/* Sets a body's acceleration, potential and work by walking the tree. */
KERNEL_HOT static void accelerate(const own *self, body *b, int64_t number) {
    int64_t stack[STACK_MAX], depth = 0;
    double d[AXES];
    b->potential = 0;
    b->work = 0;
    for (int x = 0; x < AXES; x++) b->acceleration[x] = 0;
    stack[depth++] = 0;
    while (depth > 0) {
        const cell *c = &self->tree[stack[--depth]];
        const double square = distance(b->at, c->at, d);
        if (square > c->reach) {
            pull(d, square, c->mass, b);
            pull_spread(d, square, c->spread, b);
            b->work += 2;
        } else if (c->cells) {
            for (int64_t i = c->cells - 1; i >= 0; i--) stack[depth++] = c->first_cell + i;
        } else {
            for (int64_t i = c->low; i < c->high; i++) {
                const place *p = &self->places[i];
                if (p->number == number) continue;
                const double between = distance(b->at, p->at, d);
                pull(d, between, p->mass, b);
                b->work++;
            }
        }
    }
}

/* ---- a step ---------------------------------------------------------------------------------------------------- */

/* Copies the places of all bodies. */
KERNEL_HOT static void copy_places(own *self, const body *bodies) {
    for (int64_t i = 0; i < body_count; i++) {
        place *p = &self->places[i];
        memcpy(p->at, bodies[i].at, sizeof p->at);
        p->mass = bodies[i].mass;
        p->number = i;
        p->work = bodies[i].work;
    }
}

/* Of places in order, those of part `t` of `threads`, by the work that they took last. */
KERNEL_HOT static void choose_places(own *self, int64_t t, int64_t threads) {
    int64_t total = 0, before = 0;
    for (int64_t i = 0; i < body_count; i++) total += self->places[i].work;
    self->low = self->high = body_count;
    for (int64_t i = 0; i < body_count && self->high == body_count; i++) {
        /* Which part the middle of a body's work falls into. */
        const int64_t part = (int64_t)((2 * (double)before + (double)self->places[i].work) * (double)threads /
                                       (2 * (double)total));
        if (part >= t && self->low == body_count) self->low = i;
        if (part > t) self->high = i;
        before += self->places[i].work;
    }
    if (self->low > self->high) self->low = self->high;
}

static void push(const own *self, body *bodies, double by) {
    for (int64_t i = self->low; i < self->high; i++) {
        body *b = &bodies[self->places[i].number];
        for (int x = 0; x < AXES; x++) b->velocity[x] += by * b->acceleration[x];
    }
}

static void move(const own *self, body *bodies) {
    for (int64_t i = self->low; i < self->high; i++) {
        body *b = &bodies[self->places[i].number];
        for (int x = 0; x < AXES; x++) b->at[x] += STEP * b->velocity[x];
    }
}

/* Builds the tree over the places copied, and accelerates the bodies of part `t` of `threads`. */
static void accelerate_part(own *self, body *bodies, int64_t t, int64_t threads) {
    build_tree(self);
    choose_places(self, t, threads);
    for (int64_t i = self->low; i < self->high; i++) {
        body b = bodies[self->places[i].number];
        accelerate(self, &b, self->places[i].number);
        bodies[self->places[i].number] = b;
    }
}

static own new_own(void) {
    own self;
    const size_t count = (size_t)body_count;
    self.places = kernel_private(count * sizeof *self.places);
    self.other = kernel_private(count * sizeof *self.other);
    /* Of the cells that hold more than LEAF_BODIES bodies, a body is in one for each bit; the others share none. */
    self.tree = kernel_private((count * 4 + 8 * KEY_BITS) * sizeof *self.tree);
    self.cells = self.low = self.high = 0;
    return self;
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

/* A vector of this length, in a direction that the number chooses. */
static void turn(double length, uint64_t number, double *to) {
    const double height = 2 * kernel_random(number) - 1, angle = 6.283185307179586 * kernel_random(number + 1);
    const double across = sqrt(1 - height * height);
    to[0] = length * across * cos(angle);
    to[1] = length * across * sin(angle);
    to[2] = length * height;
}

/* Body number i of a Plummer model (S. J. Aarseth, M. Henon, R. Wielen, 1974), cut off far outside. */
static void first_body(body *b, int64_t i) {
    const double scale = 3 * 3.141592653589793 / 16;
    const uint64_t number = SEED + ((uint64_t)i << 12);
    double radius = OUTERMOST, share = 0;
    memset(b, 0, sizeof *b);
    for (uint64_t k = 0; radius >= OUTERMOST; k++) radius = 1 / sqrt(pow(kernel_random(number + k), -2.0 / 3) - 1);
    for (uint64_t k = 1000;; k += 2) {
        share = kernel_random(number + k);
        if (0.1 * kernel_random(number + k + 1) < share * share * pow(1 - share * share, 3.5)) break;
    }
    b->mass = 1 / (double)body_count;
    b->work = 1;
    turn(scale * radius, number + 4000, b->at);
    turn(share * sqrt(2.0) * pow(1 + radius * radius, -0.25) / sqrt(scale), number + 4002, b->velocity);
}

/* Makes all bodies; together they rest. */
static void first_bodies(body *bodies) {
    double at[AXES] = {0}, velocity[AXES] = {0};
    for (int64_t i = 0; i < body_count; i++) {
        first_body(&bodies[i], i);
        for (int x = 0; x < AXES; x++) {
            at[x] += bodies[i].at[x] / (double)body_count;
            velocity[x] += bodies[i].velocity[x] / (double)body_count;
        }
    }
    for (int64_t i = 0; i < body_count; i++) {
        for (int x = 0; x < AXES; x++) bodies[i].at[x] -= at[x], bodies[i].velocity[x] -= velocity[x];
    }
}

static double energy_of(const body *bodies) {
    double sum = 0;
    for (int64_t i = 0; i < body_count; i++) {
        const double *v = bodies[i].velocity;
        sum += 0.5 * bodies[i].mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + bodies[i].potential);
    }
    return sum;
}

/* ---- all threads ----------------------------------------------------------------------------------------------- */

/* Copies all places and accelerates its own bodies, which nobody else writes until the next call. */
static void accelerate_own(own *self) {
    copy_places(self, shared);
    comem_barrier();
    accelerate_part(self, shared, comem_thread(), comem_threads());
}

static void do_step(own *self) {
    push(self, shared, 0.5 * STEP);
    move(self, shared);
    comem_barrier();
    accelerate_own(self);
    push(self, shared, 0.5 * STEP);
}

static void work(void *unused) {
    (void)unused;
    own self = new_own();
    if (comem_thread() == 0) first_bodies(shared);
    comem_barrier();
    accelerate_own(&self);
    comem_barrier();
    if (comem_thread() == 0) energies[0] = energy_of(shared);
    comem_barrier();
    do_step(&self); /* to warm up */
    comem_barrier();
    const double start = now();
    for (int64_t i = 1; i < steps; i++) do_step(&self);
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* A body's acceleration and potential by all others, each taken for itself. */
static void accelerate_directly(body *b, int64_t number) {
    double d[AXES];
    b->potential = 0;
    for (int x = 0; x < AXES; x++) b->acceleration[x] = 0;
    for (int64_t j = 0; j < body_count; j++) {
        if (j == number) continue;
        const double square = distance(b->at, shared[j].at, d);
        pull(d, square, shared[j].mass, b);
    }
}

/* Whether the tree gives about the accelerations that all pairs do: of some bodies, root mean square. */
static int accelerations_are_right(void) {
    double error = 0, all = 0, d[AXES];
    const int64_t samples = body_count < SAMPLES ? body_count : SAMPLES;
    for (int64_t s = 0; s < samples; s++) {
        const int64_t i = samples == SAMPLES ? (int64_t)(mix((uint64_t)s) % (uint64_t)body_count) : s;
        body b = shared[i];
        accelerate_directly(&b, i);
        error += distance(b.acceleration, shared[i].acceleration, d);
        all += b.acceleration[0] * b.acceleration[0] + b.acceleration[1] * b.acceleration[1] +
               b.acceleration[2] * b.acceleration[2];
    }
    return error <= ACCELERATION_ERROR * ACCELERATION_ERROR * all;
}

/* Whether each body's acceleration and potential are, bit for bit, those that its last place among the others gives. */
static int accelerations_are_the_last(void) {
    body *bodies = kernel_private((size_t)body_count * sizeof *bodies);
    own self = new_own();
    memcpy(bodies, shared, (size_t)body_count * sizeof *bodies);
    copy_places(&self, bodies);
    accelerate_part(&self, bodies, 0, 1);
    return memcmp(bodies, shared, (size_t)body_count * sizeof *bodies) == 0;
}

/* How far the total energy moved. */
static double drift(void) {
    return fabs(energies[1] / energies[0] - 1);
}

/* Whether the energy is what all pairs make. */
static int energy_is_right(void) {
    double sum = 0;
    for (int64_t i = 0; i < body_count; i++) {
        body b = shared[i];
        const double *v = b.velocity;
        accelerate_directly(&b, i);
        sum += 0.5 * b.mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + b.potential);
    }
    return fabs(sum / energies[1] - 1) < 1e-3;
}

/* Whether the same computation in plain memory, by one thread, gives the same bits. */
static int agrees(void) {
    body *bodies = kernel_private((size_t)body_count * sizeof *bodies);
    own self = new_own();
    first_bodies(bodies);
    copy_places(&self, bodies);
    accelerate_part(&self, bodies, 0, 1);
    for (int64_t i = 0; i < steps; i++) {
        push(&self, bodies, 0.5 * STEP);
        move(&self, bodies);
        copy_places(&self, bodies);
        accelerate_part(&self, bodies, 0, 1);
        push(&self, bodies, 0.5 * STEP);
    }
    return memcmp(bodies, shared, (size_t)body_count * sizeof *bodies) == 0;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < body_count * AXES; i++) {
        sum = mix(sum ^ kernel_bits(shared[i / AXES].at[i % AXES]));
        sum = mix(sum ^ kernel_bits(shared[i / AXES].velocity[i % AXES]));
    }
    return sum;
}

/* Node 0: looks at the result, prints the line of results but for its end, and gives the verdict. */
static int print_result(void) {
    energies[1] = energy_of(shared);
    int right = drift() < 1e-2 && accelerations_are_right() && accelerations_are_the_last();
    if (kernel_check || body_count * body_count <= PAIRS_CHECKED) right = right && energy_is_right();
    if (kernel_check) right = right && agrees();
    printf("barnes bodies=%" PRId64 " steps=%" PRId64 " energy=%.6g drift=%.1e", body_count, steps, energies[1],
           drift());
    return right;
}

static void check_numbers(void) {
    if (body_count < 2 || body_count > 1 << 22 || steps < 1) refuse("barnes", "2 to 2^22 bodies, a step or more");
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--bodies", &body_count, NULL, NULL, "bodies"},
        {"--steps", &steps, NULL, NULL, "steps; the first is to warm up"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {512, 3}},
        {"brazos", "Brazos, table 2", {32768, 5}},
        {"large", "four times that", {131072, 5}},
    };
    body_count = 32768, steps = 5;
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    check_numbers();
    shared = kernel_shared((size_t)body_count * sizeof *shared, "bodies");
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int right = print_result();
    return kernel_finish(checksum(), right);
}
