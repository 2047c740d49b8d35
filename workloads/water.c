/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * water: molecular dynamics of water, every pair of molecules looked at (SPLASH-2's WATER-NSQUARED; Nautilus,
 * section 7).
 *
 * A molecule is three charged atoms on springs. Molecules attract and repel each other up to a cutoff, beyond which a
 * smooth switch has taken the force to nothing, in a box that repeats in all directions. Velocity Verlet moves them.
 *
 * Each thread has a chunk of the molecules. A step has two barriers:
 *   1. it moves its molecules, and sets their forces to those within each molecule;
 *   2. after the barrier, it computes the forces between each of its molecules and the half of all that follows it in
 *      a circle, adds them up in memory of its own, and then adds that to the shared forces, under a lock for each
 *      chunk, its own chunk first;
 *   3. after the barrier, it brings the velocities of its molecules up to date.
 *
 * Forces and energies are added as integers, in units of 2^-30, so the order does not matter and the positions are the
 * same, bit for bit, for any number of threads. Lengths are in angstroms, times in picoseconds, masses in daltons.
 */
#include "kernel.h"

enum { ATOMS = 3, AXES = 3, SEED = 13, ENERGY_LOCK = 0, CHUNK_LOCKS = 1, SAMPLES = 90 };

/* A flexible three-point model: charges, springs, and the attraction and repulsion of the oxygens. */
static const double MASS[ATOMS] = {15.9994, 1.00794, 1.00794}, CHARGE[ATOMS] = {-0.82, 0.41, 0.41};
static const double COULOMB = 138935.458, SIGMA = 3.166, EPSILON = 65.0;
static const double BOND = 1.0, BOND_SPRING = 463700.0, OPENING = 1.63298, OPENING_SPRING = 200000.0;
static const double VOLUME = 29.9 /* of a molecule */, THERMAL = 249.434 /* energy at 300 K */, STEP = 0.0005;
static const double SCALE = 0x1p30;

typedef struct molecule {
    double at[ATOMS][AXES];
} molecule;
typedef struct force {
    int64_t on[ATOMS][AXES];
} force;
typedef struct energy {
    int64_t potential, kinetic;
} energy;

/* A box of molecules: by number, wherever they lie. */
typedef struct box {
    molecule **molecules;
    force **forces;
    energy *energies;  /* after each step; the first is after none */
    int64_t *momentum; /* three axes at the end, and the sum of its amounts */
} box;

/* What a thread has of its own: molecules [low, high), their velocities, and forces on all molecules. */
typedef struct own {
    int64_t low, high;
    molecule *velocities;
    force *forces;
} own;

static int64_t molecule_count = 216, steps = 10;
static double side, cutoff, switch_from;
static box shared;

static inline int64_t fixed(double value) {
    return (int64_t)(value * SCALE);
}

/* ---- forces ---------------------------------------------------------------------------------------------------- */

/* A spring between two atoms of a molecule; gives its energy. */
static double spring(const molecule *m, force *f, int a, int b, double length, double strength) {
    double d[AXES], square = 0;
    for (int x = 0; x < AXES; x++) {
        d[x] = m->at[a][x] - m->at[b][x];
        square += d[x] * d[x];
    }
    const double distance = sqrt(square), stretch = distance - length;
    for (int x = 0; x < AXES; x++) {
        const int64_t pull = fixed(-strength * stretch / distance * d[x]);
        f->on[a][x] += pull;
        f->on[b][x] -= pull;
    }
    return 0.5 * strength * stretch * stretch;
}

/* Sets the forces on a molecule to those within it; gives their energy. */
KERNEL_HOT static double inner_forces(const molecule *m, force *f) {
    memset(f, 0, sizeof *f);
    return spring(m, f, 0, 1, BOND, BOND_SPRING) + spring(m, f, 0, 2, BOND, BOND_SPRING) +
           spring(m, f, 1, 2, OPENING, OPENING_SPRING);
}

/* The switch at a distance below the cutoff, and its slope. */
static double switch_at(double distance, double *slope) {
    const double width = cutoff - switch_from, x = (distance - switch_from) / width;
    *slope = 0;
    if (x <= 0) return 1;
    *slope = -30 * x * x * (1 - x) * (1 - x) / width;
    return 1 - x * x * x * (10 - 15 * x + 6 * x * x);
}

/* Charges of molecule a on those of b, which stands `shift` away: adds to the force on each atom; gives the energy. */
static inline double charges(const molecule *a, const molecule *b, const double *shift, double factor,
                             double on_a[ATOMS][AXES], double on_b[ATOMS][AXES]) {
    double sum = 0;
    for (int p = 0; p < ATOMS; p++) {
        for (int q = 0; q < ATOMS; q++) {
            const double dx = a->at[p][0] - b->at[q][0] + shift[0];
            const double dy = a->at[p][1] - b->at[q][1] + shift[1];
            const double dz = a->at[p][2] - b->at[q][2] + shift[2];
            const double square = dx * dx + dy * dy + dz * dz;
            const double part = COULOMB * CHARGE[p] * CHARGE[q] / sqrt(square), push = factor * part / square;
            sum += part;
            on_a[p][0] += push * dx, on_a[p][1] += push * dy, on_a[p][2] += push * dz;
            on_b[q][0] -= push * dx, on_b[q][1] -= push * dy, on_b[q][2] -= push * dz;
        }
    }
    return sum;
}

/* Adds the forces between two molecules; gives their energy. */
static double outer_forces(const molecule *a, const molecule *b, force *f, force *g) {
    double d[AXES], shift[AXES], on_a[ATOMS][AXES] = {{0}}, on_b[ATOMS][AXES] = {{0}}, square = 0, slope;
    for (int x = 0; x < AXES; x++) {
        const double raw = a->at[0][x] - b->at[0][x];
        shift[x] = raw > 0.5 * side ? -side : raw < -0.5 * side ? side : 0;
        d[x] = raw + shift[x];
        square += d[x] * d[x];
    }
    if (square >= cutoff * cutoff) return 0;
    const double distance = sqrt(square), share = switch_at(distance, &slope);
    const double ratio = SIGMA * SIGMA / square, sixth = ratio * ratio * ratio;
    const double total = charges(a, b, shift, share, on_a, on_b) + 4 * EPSILON * sixth * (sixth - 1);
    const double push = share * 24 * EPSILON * sixth * (2 * sixth - 1) / square - slope * total / distance;
    for (int x = 0; x < AXES; x++) {
        on_a[0][x] += push * d[x];
        on_b[0][x] -= push * d[x];
    }
    for (int p = 0; p < ATOMS; p++) {
        for (int x = 0; x < AXES; x++) {
            f->on[p][x] += fixed(on_a[p][x]);
            g->on[p][x] += fixed(on_b[p][x]);
        }
    }
    return share * total;
}

/* ---- a step of a thread's molecules ---------------------------------------------------------------------------- */

/* Brings velocities half a step forward. */
KERNEL_HOT static void push(box b, own *self) {
    for (int64_t i = self->low; i < self->high; i++) {
        molecule *v = &self->velocities[i - self->low];
        for (int p = 0; p < ATOMS; p++) {
            const double factor = 0.5 * STEP / (MASS[p] * SCALE);
            for (int x = 0; x < AXES; x++) v->at[p][x] += factor * (double)b.forces[i]->on[p][x];
        }
    }
}

/* Moves molecules by a step; one whose oxygen leaves the box comes in again on the other side. */
KERNEL_HOT static void move(box b, own *self) {
    for (int64_t i = self->low; i < self->high; i++) {
        molecule *m = b.molecules[i];
        for (int x = 0; x < AXES; x++) {
            for (int p = 0; p < ATOMS; p++) m->at[p][x] += STEP * self->velocities[i - self->low].at[p][x];
            const double back = m->at[0][x] < 0 ? side : m->at[0][x] >= side ? -side : 0;
            for (int p = 0; p < ATOMS; p++) m->at[p][x] += back;
        }
    }
}

/* Sets the forces on molecules to those within each; gives the energy. */
static int64_t bend(box b, own *self) {
    int64_t potential = 0;
    for (int64_t i = self->low; i < self->high; i++) potential += fixed(inner_forces(b.molecules[i], b.forces[i]));
    return potential;
}

/* How many of the molecules that follow number i in a circle are its business: all pairs are somebody's, once. */
static int64_t followers(int64_t i) {
    return (molecule_count - 1) / 2 + (molecule_count % 2 == 0 && i < molecule_count / 2);
}

/* Computes, in memory of its own, the forces between its molecules and those that follow; gives the energy. */
KERNEL_HOT static int64_t attract(box b, own *self) {
    int64_t potential = 0;
    memset(self->forces, 0, (size_t)molecule_count * sizeof *self->forces);
    for (int64_t i = self->low; i < self->high; i++) {
        for (int64_t k = 1, j = i + 1; k <= followers(i); k++, j++) {
            if (j >= molecule_count) j -= molecule_count;
            potential += fixed(outer_forces(b.molecules[i], b.molecules[j], &self->forces[i], &self->forces[j]));
        }
    }
    return potential;
}

/* Adds its own sums to the forces on molecules [low, high). */
KERNEL_HOT static void add_forces(box b, const own *self, int64_t low, int64_t high) {
    for (int64_t i = low; i < high; i++) {
        for (int p = 0; p < ATOMS; p++) {
            for (int x = 0; x < AXES; x++) b.forces[i]->on[p][x] += self->forces[i].on[p][x];
        }
    }
}

KERNEL_HOT static int64_t kinetic_energy(const own *self) {
    int64_t sum = 0;
    for (int64_t i = 0; i < self->high - self->low; i++) {
        for (int p = 0; p < ATOMS; p++) {
            const double *v = self->velocities[i].at[p];
            sum += fixed(0.5 * MASS[p] * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]));
        }
    }
    return sum;
}

/* ---- the shared box -------------------------------------------------------------------------------------------- */

/* Adds its sums to each thread's chunk, its own first; those that it has no forces on it leaves alone. */
static void add_to_chunks(const own *self) {
    const int threads = comem_threads();
    for (int t = 0; t < threads; t++) {
        const int chunk = (comem_thread() + t) % threads;
        int64_t low, high;
        kernel_part(molecule_count, threads, chunk, &low, &high);
        const int64_t reach = self->high - self->low + molecule_count / 2;
        const int64_t ahead = (low - self->low + molecule_count) % molecule_count; /* where the chunk begins */
        if (low == high || self->low == self->high) continue;
        if (ahead >= reach && ahead + high - low <= molecule_count) continue;
        comem_lock(CHUNK_LOCKS + (uint64_t)chunk);
        add_forces(shared, self, low, high);
        comem_unlock(CHUNK_LOCKS + (uint64_t)chunk);
    }
}

/* Step number `step`; number 0 moves nothing. */
static void do_step(own *self, int64_t step) {
    if (step > 0) {
        push(shared, self);
        move(shared, self);
    }
    int64_t potential = bend(shared, self);
    comem_barrier();
    potential += attract(shared, self);
    add_to_chunks(self);
    comem_barrier();
    if (step > 0) push(shared, self);
    comem_lock(ENERGY_LOCK);
    shared.energies[step].potential += potential;
    shared.energies[step].kinetic += kinetic_energy(self);
    comem_unlock(ENERGY_LOCK);
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

static double first_velocity(int64_t i, int p, int x) {
    const double random = kernel_random(SEED + (uint64_t)((i * ATOMS + p) * AXES + x)) - 0.5;
    return random * sqrt(12 * THERMAL / MASS[p]);
}

/* Puts a molecule on a lattice, all turned alike. */
static void place(molecule *m, int64_t i) {
    const int64_t edge = (int64_t)ceil(cbrt((double)molecule_count) - 1e-9);
    const double spacing = side / (double)edge, width = 0.5 * OPENING, height = sqrt(BOND * BOND - width * width);
    const double atoms[ATOMS][AXES] = {{0, 0, 0}, {width, height, 0}, {-width, height, 0}};
    const int64_t cell[AXES] = {i % edge, i / edge % edge, i / edge / edge};
    for (int p = 0; p < ATOMS; p++) {
        for (int x = 0; x < AXES; x++) m->at[p][x] = ((double)cell[x] + 0.5) * spacing + atoms[p][x];
    }
}

/* Puts molecules [low, high) in their places, with velocities of 300 K that cancel out over the whole box. */
static own begin(box b, int64_t low, int64_t high) {
    double momentum[AXES] = {0}, mass = 0;
    for (int64_t i = 0; i < molecule_count; i++) {
        for (int p = 0; p < ATOMS; p++) {
            for (int x = 0; x < AXES; x++) momentum[x] += MASS[p] * first_velocity(i, p, x);
            mass += MASS[p];
        }
    }
    own self = {low, high, NULL, NULL};
    self.velocities = kernel_private((size_t)(high - low + 1) * sizeof *self.velocities);
    self.forces = kernel_private((size_t)molecule_count * sizeof *self.forces);
    for (int64_t i = low; i < high; i++) {
        place(b.molecules[i], i);
        memset(b.forces[i], 0, sizeof *b.forces[i]);
        for (int p = 0; p < ATOMS; p++) {
            for (int x = 0; x < AXES; x++) {
                self.velocities[i - low].at[p][x] = first_velocity(i, p, x) - momentum[x] / mass;
            }
        }
    }
    return self;
}

/* Adds the momentum of its molecules to the box's. */
static void add_momentum(box b, const own *self) {
    for (int64_t i = 0; i < self->high - self->low; i++) {
        for (int p = 0; p < ATOMS; p++) {
            for (int x = 0; x < AXES; x++) {
                const double part = MASS[p] * self->velocities[i].at[p][x];
                b.momentum[x] += fixed(part);
                b.momentum[AXES] += fixed(fabs(part));
            }
        }
    }
}

static void work(void *unused) {
    (void)unused;
    int64_t low, high;
    kernel_part(molecule_count, comem_threads(), comem_thread(), &low, &high);
    own self = begin(shared, low, high);
    comem_barrier();
    do_step(&self, 0);
    do_step(&self, 1); /* to warm up */
    comem_barrier();
    double start = now();
    for (int64_t step = 2; step < steps + 2; step++) do_step(&self, step);
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
    comem_lock(ENERGY_LOCK);
    add_momentum(shared, &self);
    comem_unlock(ENERGY_LOCK);
    comem_barrier();
}

/* Molecules and forces of each thread's chunk are in its own part; energies are in a page for all. */
static void new_shared_box(void) {
    const int threads = comem_threads();
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **molecules = kernel_private((size_t)threads * sizeof *molecules);
    void **forces = kernel_private((size_t)threads * sizeof *forces);
    int64_t low, high;
    for (int t = 0; t < threads; t++) {
        kernel_part(molecule_count, threads, t, &low, &high);
        bytes[t] = (size_t)(high - low) * sizeof(molecule);
    }
    kernel_alloc_parts("molecules", bytes, molecules);
    kernel_alloc_parts("forces", bytes, forces);
    shared.molecules = kernel_private((size_t)molecule_count * sizeof *shared.molecules);
    shared.forces = kernel_private((size_t)molecule_count * sizeof *shared.forces);
    for (int t = 0; t < threads; t++) {
        kernel_part(molecule_count, threads, t, &low, &high);
        for (int64_t i = low; i < high; i++) {
            shared.molecules[i] = (molecule *)molecules[t] + (i - low);
            shared.forces[i] = (force *)forces[t] + (i - low);
        }
    }
    comem_region_options options;
    memset(&options, 0, sizeof options);
    options.label = "energies";
    options.alignment = KERNEL_PAGE;
    const size_t energies = ((size_t)steps + 2) * sizeof *shared.energies;
    shared.energies = comem_alloc_all(kernel_round_up(energies + 4 * sizeof(int64_t), KERNEL_PAGE), &options);
    if (!shared.energies) refuse("water", "no shared memory");
    shared.momentum = (int64_t *)(shared.energies + steps + 2);
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

static double total_energy(int64_t step) {
    return ((double)shared.energies[step].potential + (double)shared.energies[step].kinetic) / SCALE;
}

/* How far the total energy moved, in relation to the kinetic one. */
static double drift(void) {
    return fabs(total_energy(steps + 1) - total_energy(0)) / ((double)shared.energies[0].kinetic / SCALE);
}

/* Whether the sum of all momenta is still nothing, in relation to their amounts. */
static int momentum_is_kept(void) {
    for (int x = 0; x < AXES; x++) {
        if (fabs((double)shared.momentum[x]) > 1e-9 * (double)shared.momentum[AXES]) return 0;
    }
    return 1;
}

/* The energy of molecule i, were it at `m`, by itself and with all others from number `from`. */
static double energy_at(const molecule *m, int64_t i, int64_t from) {
    force unused;
    double sum = inner_forces(m, &unused);
    for (int64_t j = from; j < molecule_count; j++) {
        if (j != i) sum += outer_forces(m, shared.molecules[j], &unused, &unused);
    }
    return sum;
}

/* Whether the last potential energy is that of all molecules and pairs, each taken once. */
static int potential_is_right(void) {
    double sum = 0;
    for (int64_t i = 0; i < molecule_count; i++) sum += energy_at(shared.molecules[i], i, i + 1);
    const double found = (double)shared.energies[steps + 1].potential / SCALE;
    return fabs(sum - found) <= 1e-9 * fabs(found) + 1e-3;
}

/* Whether forces are slopes of the energy: compares some with what a small displacement costs. */
static int forces_are_slopes(void) {
    const double small = 1e-5;
    for (uint64_t s = 0; s < SAMPLES; s++) {
        const int64_t i = (int64_t)(mix(s) % (uint64_t)molecule_count);
        const int p = (int)(s % ATOMS), x = (int)(s / ATOMS % AXES);
        molecule ahead = *shared.molecules[i], behind = ahead;
        ahead.at[p][x] += small;
        behind.at[p][x] -= small;
        const double slope = (energy_at(&behind, i, 0) - energy_at(&ahead, i, 0)) / (2 * small);
        const double found = (double)shared.forces[i]->on[p][x] / SCALE;
        if (!(fabs(slope - found) <= 1e-6 * fabs(found) + 1e-2)) return 0;
    }
    return 1;
}

/* Whether the same computation in plain memory, by one thread, gives the same bits. */
static int agrees(void) {
    box b;
    b.molecules = kernel_private((size_t)molecule_count * sizeof *b.molecules);
    b.forces = kernel_private((size_t)molecule_count * sizeof *b.forces);
    for (int64_t i = 0; i < molecule_count; i++) {
        b.molecules[i] = kernel_private(sizeof(molecule));
        b.forces[i] = kernel_private(sizeof(force));
    }
    own self = begin(b, 0, molecule_count);
    for (int64_t step = 0; step < steps + 2; step++) {
        if (step > 0) {
            push(b, &self);
            move(b, &self);
        }
        const int64_t potential = bend(b, &self) + attract(b, &self);
        add_forces(b, &self, 0, molecule_count);
        if (step > 0) push(b, &self);
        if (potential != shared.energies[step].potential) return 0;
        if (kinetic_energy(&self) != shared.energies[step].kinetic) return 0;
    }
    for (int64_t i = 0; i < molecule_count; i++) {
        if (memcmp(b.molecules[i], shared.molecules[i], sizeof(molecule)) != 0) return 0;
    }
    return 1;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < molecule_count * ATOMS * AXES; i++) {
        sum = mix(sum ^ kernel_bits(shared.molecules[i / (ATOMS * AXES)]->at[i / AXES % ATOMS][i % AXES]));
    }
    return sum;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--molecules", &molecule_count, NULL, NULL, "molecules"},
        {"--steps", &steps, NULL, NULL, "steps, after one to warm up"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {125, 6}},
        {"nautilus", "Nautilus, section 8", {1728, 25}},
        {"jiajia", "JIAJIA", {1728, 5}},
        {"brazos", "Brazos, table 2", {729, 10}},
        {"large", "four times Nautilus", {6912, 25}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (molecule_count < 27 || molecule_count > 1 << 20 || steps < 1) {
        refuse("water", "27 to 2^20 molecules, a step or more");
    }
    side = cbrt(VOLUME * (double)molecule_count);
    cutoff = 0.5 * side;
    switch_from = 0.9 * cutoff;
    new_shared_box();
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    int right = drift() < 0.02 && momentum_is_kept();
    if (kernel_check) right = right && potential_is_right() && forces_are_slopes() && agrees();
    printf("water molecules=%" PRId64 " steps=%" PRId64 " energy=%.6g drift=%.1e", molecule_count, steps,
           total_energy(steps + 1), drift());
    return kernel_finish(checksum(), right);
}
