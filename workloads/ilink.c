/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * ilink: genetic linkage (the part of LINKAGE that Brazos, section 4, calls ILINK): how likely is what is known of the
 * people of a pedigree, for a fraction of recombinants theta, and for which theta is that likeliest?
 *
 * A person has two haplotypes, one of each parent; together they are the person's genotype. The probabilities of all
 * genotypes of a person are an array, mostly of zeros, with a list of the others. The pedigree has no loops, so it is
 * peeled family by family (R. C. Elston, J. Stewart, "A general model for the genetic analysis of pedigree data", Human
 * Heredity 21, 1971): all that a family says is put into the array of its *pivot*, the one member that belongs to
 * another family too.
 *
 * The arrays of one family's members are a pool in shared memory, which thread 0 fills anew for each family. After a
 * barrier all threads read them. The entries of a parent that are not zero are dealt to the threads in turn, so that
 * all write between one another in the same pages. After another barrier thread 0 adds up, and goes on.
 *
 * Sums are made in one order, whichever threads make them, so the result is the same, bit for bit, for any number of
 * threads. Small pedigrees are compared with a sum over all combinations of genotypes.
 */
#include "kernel.h"

enum {
    FATHER,
    MOTHER,
    CHILDREN,
    LOCI_MAX = 4,
    ALLELES_MAX = 16,
    CHILDREN_MAX = 8,
    MEMBERS = CHILDREN + CHILDREN_MAX,
    GAMETES = 1 << LOCI_MAX,
    SHARES = 32, /* of the sums for a child; more threads than that have none */
    SEED = 1997,
    NOBODY = -1
};

/* As many products as that are always made again by one thread, in about a second; --check asks for it beyond. */
static const double PRODUCTS_CHECKED = 0x1p30;

/* The first locus is a disease: allele 1 is rare, and whoever has it is mostly affected. The others are markers. */
static const double DISEASE_FREQUENCY = 0.05, AFFECTED[3] = {0.02, 0.8, 0.95};
static const double TRUE_THETA = 0.08, THETA_LOW = 0.001, THETA_HIGH = 0.499, NO_LINKAGE = 0.5;

static int64_t families = 6, children = 4, loci = 3, alleles = 4, untyped = 30, evaluations = 8;

/* The loci and what follows from them. A haplotype's number has an allele of each locus for its digits. */
typedef struct model {
    int64_t loci, haplotypes, genotypes;
    int64_t alleles[LOCI_MAX];
    double frequency[LOCI_MAX][ALLELES_MAX];
} model;

/* A person, and what was observed: whether affected and, if typed, both alleles of each marker. */
typedef struct person {
    int64_t father, mother; /* NOBODY: a founder */
    int has_family;         /* of its own, as a parent */
    int affected, typed;
    int64_t observed[LOCI_MAX][2];
} person;

/* A nuclear family: its members' numbers, parents first, and which of them is the pivot. */
typedef struct family {
    int64_t member[MEMBERS];
    int64_t children, pivot;
} family;

/* Families in the order in which they came to be: each but the first shares its pivot with one before it. */
typedef struct pedigree {
    model of;
    person *people;
    int64_t *result; /* for each person: the family that was peeled into it, or NOBODY */
    family *families;
    int64_t people_count, family_count;
} pedigree;

/* What all threads share: the arrays of one family's members, with the numbers of the entries that are not zero. */
typedef struct pool {
    double *values;        /* by member and genotype */
    int32_t *index;        /* by member: the first `counts` are in use */
    int64_t *counts;       /* by member */
    double *contributions; /* to a child that is the pivot: by entry in its index, and share */
    double *results;       /* by family and genotype: its pivot's array once it is peeled */
    double *log_likelihood; /* by evaluation */
} pool;

/* The haplotypes that a person passes on, with their probabilities. */
typedef struct gametes {
    int64_t count;
    int64_t haplotype[GAMETES];
    double probability[GAMETES];
} gametes;

/* What a thread has of its own. */
typedef struct own {
    gametes *passed_on; /* by genotype */
    double *partial;    /* by child and haplotype: the child's array, one haplotype summed over */
    double *by_haplotype, *by_genotype;
    double log_scale; /* thread 0: what was divided out */
} own;

/* The search for the best theta, by golden sections. All threads make it alike. */
typedef struct search {
    double low, high, theta[2], found[2], best, best_found;
    int next;
} search;

static pedigree people_here;
static pool shared;

/* ---- the model ------------------------------------------------------------------------------------------------- */

static int64_t allele_of(const model *of, int64_t haplotype, int64_t locus) {
    for (int64_t l = 0; l < locus; l++) haplotype /= of->alleles[l];
    return haplotype % of->alleles[locus];
}

static model new_model(int64_t locus_count, int64_t marker_alleles) {
    model of;
    memset(&of, 0, sizeof of);
    of.loci = locus_count;
    of.haplotypes = 1;
    for (int64_t l = 0; l < locus_count; l++) {
        double sum = 0;
        of.alleles[l] = l == 0 ? 2 : marker_alleles;
        of.haplotypes *= of.alleles[l];
        for (int64_t a = 0; a < of.alleles[l]; a++) {
            of.frequency[l][a] = 0.5 + kernel_random((uint64_t)(SEED + 100 * l + a));
            sum += of.frequency[l][a];
        }
        for (int64_t a = 0; a < of.alleles[l]; a++) of.frequency[l][a] /= sum;
    }
    of.frequency[0][0] = 1 - DISEASE_FREQUENCY;
    of.frequency[0][1] = DISEASE_FREQUENCY;
    of.genotypes = of.haplotypes * of.haplotypes;
    return of;
}

static double haplotype_frequency(const model *of, int64_t haplotype) {
    double product = 1;
    for (int64_t l = 0; l < of->loci; l++) product *= of->frequency[l][allele_of(of, haplotype, l)];
    return product;
}

/* The probability of what was observed of a person who has a genotype. */
static double penetrance(const model *of, const person *who, int64_t genotype) {
    const int64_t first = genotype / of->haplotypes, second = genotype % of->haplotypes;
    for (int64_t l = 1; who->typed && l < of->loci; l++) {
        const int64_t a = allele_of(of, first, l), b = allele_of(of, second, l);
        const int64_t *seen = who->observed[l];
        if (!(a == seen[0] && b == seen[1]) && !(a == seen[1] && b == seen[0])) return 0;
    }
    const double affected = AFFECTED[allele_of(of, first, 0) + allele_of(of, second, 0)];
    return who->affected ? affected : 1 - affected;
}

/* The array of a person of whom nothing but itself was looked at. */
static double first_value(const model *of, const person *who, int64_t genotype) {
    const double seen = penetrance(of, who, genotype);
    if (seen == 0 || who->father != NOBODY) return seen;
    return seen * haplotype_frequency(of, genotype / of->haplotypes) *
           haplotype_frequency(of, genotype % of->haplotypes);
}

/* All that a person passes on: at each locus, an allele of the same haplotype as at the one before, or with probability
 * theta of the other one. */
static void pass_on(const model *of, int64_t genotype, double theta, gametes *g) {
    const int64_t from[2] = {genotype / of->haplotypes, genotype % of->haplotypes};
    g->count = 0;
    for (int64_t path = 0; path < (int64_t)1 << of->loci; path++) {
        int64_t haplotype = 0, digit = 1, k = 0;
        double probability = 0.5;
        for (int64_t l = 0; l < of->loci; l++) {
            haplotype += digit * allele_of(of, from[path >> l & 1], l);
            digit *= of->alleles[l];
            if (l > 0) probability *= (path >> l & 1) == (path >> (l - 1) & 1) ? 1 - theta : theta;
        }
        while (k < g->count && g->haplotype[k] != haplotype) k++;
        if (k == g->count) g->haplotype[g->count++] = haplotype, g->probability[k] = 0;
        g->probability[k] += probability;
    }
}

/* ---- pedigrees ------------------------------------------------------------------------------------------------- */

static int64_t new_person(pedigree *p, int64_t father, int64_t mother) {
    p->people[p->people_count] = (person){.father = father, .mother = mother};
    return p->people_count++;
}

/* A family of which one member is there already: as a parent or, so that parents are found, as a child. The first
 * family has no such member. */
static void new_family(pedigree *p, int64_t who, uint64_t random, int64_t children_max) {
    family *f = &p->families[p->family_count++];
    const int as_child = who != NOBODY && p->people[who].has_family;
    const int as_mother = random >> 32 & 1;
    const int64_t first = as_child ? NOBODY : who;
    f->children = children_max - (int64_t)(random % (uint64_t)((children_max + 1) / 2));
    f->member[as_mother] = first == NOBODY ? new_person(p, NOBODY, NOBODY) : first;
    f->member[!as_mother] = new_person(p, NOBODY, NOBODY);
    f->pivot = as_child ? CHILDREN : as_mother;
    for (int64_t c = 0; c < f->children; c++) {
        const int known = as_child && c == 0;
        f->member[CHILDREN + c] = known ? who : new_person(p, f->member[FATHER], f->member[MOTHER]);
    }
    if (as_child) p->people[who].father = f->member[FATHER], p->people[who].mother = f->member[MOTHER];
    p->people[f->member[FATHER]].has_family = p->people[f->member[MOTHER]].has_family = 1;
}

/* Whether a person may be a member of one more family: everybody is a child once and a parent once. */
static int is_open(const person *who) {
    return !who->has_family || who->father == NOBODY;
}

/* Draws a person's genotype, after those of the parents. */
static int64_t draw(const pedigree *p, int64_t who, uint64_t seed, int64_t *drawn) {
    const model *of = &p->of;
    int64_t haplotype[2];
    if (drawn[who] >= 0) return drawn[who];
    for (int side = 0; side < 2; side++) {
        const int64_t parent = side ? p->people[who].mother : p->people[who].father;
        double random = kernel_random(seed + 1000003 * (uint64_t)(2 * who + side));
        gametes g;
        if (parent != NOBODY) {
            pass_on(of, draw(p, parent, seed, drawn), TRUE_THETA, &g);
        } else {
            random *= 1 - 1e-12;
        }
        int64_t k = 0;
        const int64_t count = parent == NOBODY ? of->haplotypes : g.count;
        for (; k < count - 1; k++) {
            const double here = parent == NOBODY ? haplotype_frequency(of, k) : g.probability[k];
            if (random < here) break;
            random -= here;
        }
        haplotype[side] = parent == NOBODY ? k : g.haplotype[k];
    }
    return drawn[who] = haplotype[0] * of->haplotypes + haplotype[1];
}

/* Lets the founders' haplotypes fall through the pedigree, and notes what is seen of everybody. */
static void observe(pedigree *p, uint64_t seed, int64_t untyped_percent) {
    const model *of = &p->of;
    int64_t *drawn = kernel_private((size_t)p->people_count * sizeof *drawn);
    for (int64_t i = 0; i < p->people_count; i++) drawn[i] = NOBODY;
    for (int64_t i = 0; i < p->people_count; i++) {
        person *who = &p->people[i];
        const int64_t genotype = draw(p, i, seed, drawn);
        const int64_t first = genotype / of->haplotypes, second = genotype % of->haplotypes;
        const double risk = AFFECTED[allele_of(of, first, 0) + allele_of(of, second, 0)];
        who->affected = kernel_random(seed + 7 * (uint64_t)i + 1) < risk;
        who->typed = mix(seed + 11 * (uint64_t)i + 2) % 100 >= (uint64_t)untyped_percent;
        for (int64_t l = 1; l < of->loci; l++) {
            who->observed[l][0] = allele_of(of, first, l);
            who->observed[l][1] = allele_of(of, second, l);
        }
    }
}

static pedigree new_pedigree(model of, int64_t count, int64_t children_max, int64_t untyped_percent, uint64_t seed) {
    pedigree p = {.of = of};
    const size_t people_max = (size_t)(count * (children_max + 2));
    p.people = kernel_private(people_max * sizeof *p.people);
    p.result = kernel_private(people_max * sizeof *p.result);
    p.families = kernel_private((size_t)count * sizeof *p.families);
    new_family(&p, NOBODY, mix(seed), children_max);
    for (uint64_t turn = 1; p.family_count < count; turn++) {
        const uint64_t random = mix(seed + turn);
        const int64_t who = (int64_t)(random % (uint64_t)p.people_count);
        if (is_open(&p.people[who])) new_family(&p, who, mix(random), children_max);
    }
    observe(&p, mix(seed ^ 0x5eed), untyped_percent);
    for (int64_t i = 0; i < p.people_count; i++) p.result[i] = NOBODY;
    for (int64_t f = 1; f < count; f++) p.result[p.families[f].member[p.families[f].pivot]] = f;
    return p;
}

/* ---- peeling a family ------------------------------------------------------------------------------------------ */

static int64_t members_of(const family *f) {
    return CHILDREN + f->children;
}

/* Thread 0: sets up the arrays of a family's members, from what is known of each and from the families that were peeled
 * into them. */
KERNEL_HOT static void fill_pool(pool s, const pedigree *p, int64_t number) {
    const family *f = &p->families[number];
    const int64_t genotypes = p->of.genotypes;
    for (int64_t j = 0; j < members_of(f); j++) {
        const int64_t who = f->member[j], peeled = p->result[who];
        double *values = s.values + j * genotypes;
        int32_t *index = s.index + j * genotypes;
        const int is_peeled = peeled != NOBODY && peeled != number;
        const double *result = is_peeled ? s.results + peeled * genotypes : NULL;
        s.counts[j] = 0;
        for (int64_t g = 0; g < genotypes; g++) {
            values[g] = result ? result[g] : first_value(&p->of, &p->people[who], g);
            if (values[g] != 0) index[s.counts[j]++] = (int32_t)g;
        }
    }
}

/* Sums, for each child but `except`, over the haplotype of the parent on side `side`, whose genotype is given. */
static void sum_side(pool s, const pedigree *p, const family *f, own *self, int side, int64_t genotype,
                     int64_t except) {
    const gametes *g = &self->passed_on[genotype];
    const int64_t haplotypes = p->of.haplotypes, step = side == FATHER ? 1 : haplotypes;
    for (int64_t c = 0; c < f->children; c++) {
        double *partial = self->partial + c * haplotypes;
        if (CHILDREN + c == except) continue;
        memset(partial, 0, (size_t)haplotypes * sizeof *partial);
        for (int64_t k = 0; k < g->count; k++) {
            const int64_t row = g->haplotype[k] * (side == FATHER ? haplotypes : 1);
            const double *values = s.values + (CHILDREN + c) * p->of.genotypes + row;
            for (int64_t h = 0; h < haplotypes; h++) partial[h] += g->probability[k] * values[h * step];
        }
    }
}

/* After sum_side(): how likely the children but `except` are when the other parent has this genotype. */
static double children_given(const pedigree *p, const family *f, const own *self, int64_t genotype, int64_t except) {
    const gametes *g = &self->passed_on[genotype];
    double product = 1;
    for (int64_t c = 0; c < f->children && product != 0; c++) {
        const double *partial = self->partial + c * p->of.haplotypes;
        double sum = 0;
        if (CHILDREN + c == except) continue;
        for (int64_t k = 0; k < g->count; k++) sum += g->probability[k] * partial[g->haplotype[k]];
        product *= sum;
    }
    return product;
}

/* Thread `t` of `threads`, where a parent is the pivot: its entries number t, t + threads and so on. */
KERNEL_HOT static void share_parent(pool s, const pedigree *p, const family *f, own *self, int64_t t, int64_t threads) {
    const int side = (int)f->pivot;
    const int64_t genotypes = p->of.genotypes;
    double *values = s.values + side * genotypes;
    const double *others = s.values + !side * genotypes;
    for (int64_t k = t; k < s.counts[side]; k += threads) {
        const int64_t genotype = s.index[side * genotypes + k];
        double sum = 0;
        sum_side(s, p, f, self, side, genotype, NOBODY);
        for (int64_t j = 0; j < s.counts[!side]; j++) {
            const int64_t other = s.index[!side * genotypes + j];
            sum += others[other] * children_given(p, f, self, other, NOBODY);
        }
        values[genotype] *= sum;
    }
}

/* What one genotype of the parent on `side` adds to each genotype of the child that is the pivot. */
static void add_to_child(pool s, const pedigree *p, const family *f, own *self, int side, int64_t genotype) {
    const int64_t genotypes = p->of.genotypes, haplotypes = p->of.haplotypes;
    const gametes *g = &self->passed_on[genotype];
    memset(self->by_haplotype, 0, (size_t)haplotypes * sizeof *self->by_haplotype);
    sum_side(s, p, f, self, side, genotype, f->pivot);
    for (int64_t j = 0; j < s.counts[!side]; j++) {
        const int64_t other = s.index[!side * genotypes + j];
        const double term = s.values[!side * genotypes + other] * children_given(p, f, self, other, f->pivot);
        const gametes *o = &self->passed_on[other];
        for (int64_t k = 0; k < o->count; k++) self->by_haplotype[o->haplotype[k]] += term * o->probability[k];
    }
    const int64_t row = side == FATHER ? haplotypes : 1, step = side == FATHER ? 1 : haplotypes;
    for (int64_t k = 0; k < g->count; k++) {
        const double factor = s.values[side * genotypes + genotype] * g->probability[k];
        double *sums = self->by_genotype + g->haplotype[k] * row;
        for (int64_t h = 0; h < haplotypes; h++) sums[h * step] += factor * self->by_haplotype[h];
    }
}

/* The same where a child is the pivot. The entries of the parent that has more are dealt to a fixed number of shares,
 * and shares to threads, so that sums are made in the same order whoever makes them. */
KERNEL_HOT static void share_child(pool s, const pedigree *p, const family *f, own *self, int64_t t, int64_t threads) {
    const int side = s.counts[FATHER] >= s.counts[MOTHER] ? FATHER : MOTHER;
    const int64_t genotypes = p->of.genotypes;
    for (int64_t share = t; share < SHARES; share += threads) {
        memset(self->by_genotype, 0, (size_t)genotypes * sizeof *self->by_genotype);
        for (int64_t k = share; k < s.counts[side]; k += SHARES) {
            add_to_child(s, p, f, self, side, s.index[side * genotypes + k]);
        }
        for (int64_t i = 0; i < s.counts[f->pivot]; i++) {
            s.contributions[i * SHARES + share] = self->by_genotype[s.index[f->pivot * genotypes + i]];
        }
    }
}

static void share_family(pool s, const pedigree *p, int64_t number, own *self, int64_t t, int64_t threads) {
    const family *f = &p->families[number];
    (f->pivot < CHILDREN ? share_parent : share_child)(s, p, f, self, t, threads);
}

/* Thread 0: adds up what the threads found. The pivot's array becomes the family's result, divided by its sum so that
 * numbers do not become too small; of the sum the logarithm is kept. */
KERNEL_HOT static void sum_family(pool s, const pedigree *p, int64_t number, own *self) {
    const family *f = &p->families[number];
    const int64_t genotypes = p->of.genotypes, count = s.counts[f->pivot];
    const int32_t *index = s.index + f->pivot * genotypes;
    double *values = s.values + f->pivot * genotypes, *result = s.results + number * genotypes, total = 0;
    for (int64_t i = 0; i < count; i++) {
        double sum = 1;
        if (f->pivot >= CHILDREN) {
            sum = 0;
            for (int64_t share = 0; share < SHARES; share++) sum += s.contributions[i * SHARES + share];
        }
        values[index[i]] *= sum;
        total += values[index[i]];
    }
    for (int64_t g = 0; g < genotypes; g++) result[g] = values[g] / total;
    self->log_scale += log(total);
}

/* Every thread: what each genotype passes on with this theta. */
KERNEL_HOT static void begin_evaluation(const pedigree *p, double theta, own *self) {
    for (int64_t g = 0; g < p->of.genotypes; g++) pass_on(&p->of, g, theta, &self->passed_on[g]);
    self->log_scale = 0;
}

static own new_own(const pedigree *p) {
    own self;
    self.passed_on = kernel_private((size_t)p->of.genotypes * sizeof *self.passed_on);
    self.partial = kernel_private((size_t)(CHILDREN_MAX * p->of.haplotypes) * sizeof(double));
    self.by_haplotype = kernel_private((size_t)p->of.haplotypes * sizeof(double));
    self.by_genotype = kernel_private((size_t)p->of.genotypes * sizeof(double));
    self.log_scale = 0;
    return self;
}

/* The logarithm of the likelihood, by one thread. */
static double peel(pool s, const pedigree *p, double theta, own *self) {
    begin_evaluation(p, theta, self);
    for (int64_t f = p->family_count - 1; f >= 0; f--) {
        fill_pool(s, p, f);
        share_family(s, p, f, self, 0, 1);
        sum_family(s, p, f, self);
    }
    return self->log_scale;
}

/* ---- the search ------------------------------------------------------------------------------------------------ */

static double between(const search *s, int which) {
    const double golden = 0.6180339887498949;
    return which ? s->low + golden * (s->high - s->low) : s->high - golden * (s->high - s->low);
}

static search new_search(void) {
    search s = {.low = THETA_LOW, .high = THETA_HIGH, .best_found = -HUGE_VAL};
    s.theta[0] = between(&s, 0);
    s.theta[1] = between(&s, 1);
    return s;
}

/* The theta to evaluate next: that without linkage first, to warm up. */
static double next_theta(const search *s, int64_t evaluation) {
    return evaluation == 0 ? NO_LINKAGE : s->theta[s->next];
}

/* Takes in the logarithm of the likelihood of the theta that was asked for. */
static void found(search *s, int64_t evaluation, double log_likelihood) {
    if (evaluation == 0) return;
    s->found[s->next] = log_likelihood;
    if (log_likelihood > s->best_found) s->best_found = log_likelihood, s->best = s->theta[s->next];
    if (evaluation == 1) {
        s->next = 1;
        return;
    }
    const int better = s->found[1] > s->found[0];
    if (better) {
        s->low = s->theta[0];
    } else {
        s->high = s->theta[1];
    }
    s->theta[!better] = s->theta[better];
    s->found[!better] = s->found[better];
    s->theta[better] = between(s, better);
    s->next = better;
}

/* ---- all threads ----------------------------------------------------------------------------------------------- */

/* One evaluation; gives the logarithm of the likelihood, to all threads alike. */
static double evaluate(int64_t evaluation, double theta, own *self) {
    const int t = comem_thread();
    begin_evaluation(&people_here, theta, self);
    for (int64_t f = families - 1; f >= 0; f--) {
        if (t == 0) fill_pool(shared, &people_here, f);
        comem_barrier();
        share_family(shared, &people_here, f, self, t, comem_threads());
        comem_barrier();
        if (t == 0) sum_family(shared, &people_here, f, self);
    }
    if (t == 0) shared.log_likelihood[evaluation] = self->log_scale;
    comem_barrier();
    return shared.log_likelihood[evaluation];
}

static void work(void *unused) {
    (void)unused;
    own self = new_own(&people_here);
    search s = new_search();
    double start = 0;
    for (int64_t e = 0; e <= evaluations; e++) {
        found(&s, e, evaluate(e, next_theta(&s, e), &self));
        if (e == 0) start = now();
    }
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

typedef void *allocate(size_t bytes, const char *label);

static void *private_memory(size_t bytes, const char *label) {
    (void)label;
    return kernel_private(bytes);
}

static pool new_pool(const pedigree *p, int64_t evaluation_count, allocate *memory) {
    const size_t genotypes = (size_t)p->of.genotypes;
    pool s;
    s.values = memory(MEMBERS * genotypes * sizeof *s.values, "probabilities");
    s.index = memory(MEMBERS * genotypes * sizeof *s.index, "indices");
    s.counts = memory(MEMBERS * sizeof *s.counts, "counts");
    s.contributions = memory(SHARES * genotypes * sizeof *s.contributions, "contributions");
    s.results = memory((size_t)p->family_count * genotypes * sizeof *s.results, "results");
    s.log_likelihood = memory((size_t)(evaluation_count + 1) * sizeof *s.log_likelihood, "likelihoods");
    return s;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Adds up the products of probabilities of all combinations of genotypes of the people from number `at` in `order`. */
static double enumerate(const pedigree *p, const gametes *passed_on, const int64_t *order, int64_t at, int64_t *given) {
    if (at == p->people_count) return 1;
    const person *who = &p->people[order[at]];
    double sum = 0;
    if (who->father == NOBODY) {
        for (int64_t g = 0; g < p->of.genotypes; g++) {
            const double here = first_value(&p->of, who, g);
            given[order[at]] = g;
            if (here != 0) sum += here * enumerate(p, passed_on, order, at + 1, given);
        }
        return sum;
    }
    const gametes *f = &passed_on[given[who->father]], *m = &passed_on[given[who->mother]];
    for (int64_t i = 0; i < f->count * m->count; i++) {
        const int64_t a = i / m->count, b = i % m->count;
        const int64_t g = f->haplotype[a] * p->of.haplotypes + m->haplotype[b];
        const double here = f->probability[a] * m->probability[b] * first_value(&p->of, who, g);
        given[order[at]] = g;
        if (here != 0) sum += here * enumerate(p, passed_on, order, at + 1, given);
    }
    return sum;
}

/* Puts everybody behind their parents. */
static void order_people(const pedigree *p, int64_t *order) {
    int *placed = kernel_private((size_t)p->people_count * sizeof *placed);
    for (int64_t count = 0; count < p->people_count;) {
        for (int64_t i = 0; i < p->people_count; i++) {
            const person *who = &p->people[i];
            if (placed[i] || (who->father != NOBODY && !(placed[who->father] && placed[who->mother]))) continue;
            placed[i] = 1;
            order[count++] = i;
        }
    }
}

/* Whether peeling a small pedigree gives what all combinations of genotypes add up to. */
static int is_right(pedigree p, double theta) {
    int64_t *order = kernel_private((size_t)p.people_count * sizeof *order);
    int64_t *given = kernel_private((size_t)p.people_count * sizeof *given);
    own self = new_own(&p);
    const double peeled = peel(new_pool(&p, 0, private_memory), &p, theta, &self);
    order_people(&p, order);
    const double all = log(enumerate(&p, self.passed_on, order, 0, given));
    return fabs(peeled - all) <= 1e-11 * (1 + fabs(all));
}

/* The same for several: with pivots of every kind, two loci and three. */
static int small_ones_are_right(void) {
    int right = 1;
    for (uint64_t seed = 0; seed < 12; seed++) {
        right = right && is_right(new_pedigree(new_model(2, 2), 2, 2, 20, mix(seed)), 0.03 + 0.04 * (double)seed);
    }
    right = right && is_right(new_pedigree(new_model(2, 3), 3, 1, 20, mix(77)), 0.2);
    return right && is_right(new_pedigree(new_model(3, 2), 1, 2, 30, mix(99)), 0.1);
}

/* Whether the same search in plain memory, by one thread, gives the same bits. */
static int agrees(void) {
    const pool s = new_pool(&people_here, 0, private_memory);
    own self = new_own(&people_here);
    search found_here = new_search();
    for (int64_t e = 0; e <= evaluations; e++) {
        const double here = peel(s, &people_here, next_theta(&found_here, e), &self);
        if (kernel_bits(here) != kernel_bits(shared.log_likelihood[e])) return 0;
        found(&found_here, e, here);
    }
    return 1;
}

/* About how many products all evaluations take. */
static double products(void) {
    const model *of = &people_here.of;
    double sum = 0;
    for (int64_t f = 0; f < families; f++) {
        double entries[2] = {0, 0};
        for (int side = FATHER; side <= MOTHER; side++) {
            const person *who = &people_here.people[people_here.families[f].member[side]];
            for (int64_t g = 0; g < of->genotypes; g++) entries[side] += first_value(of, who, g) != 0;
        }
        const double each = (double)(people_here.families[f].children << of->loci);
        sum += each * (entries[FATHER] * entries[MOTHER] + (double)of->haplotypes * entries[FATHER]);
    }
    return sum * (double)(evaluations + 1);
}

/* Prints the line of results but for its end, and gives the likelihoods' checksum. */
static uint64_t print_result(void) {
    search s = new_search();
    uint64_t sum = 0;
    for (int64_t e = 0; e <= evaluations; e++) {
        found(&s, e, shared.log_likelihood[e]);
        sum = mix(sum ^ kernel_bits(shared.log_likelihood[e]));
    }
    const double lod = (s.best_found - shared.log_likelihood[0]) / log(10);
    printf("ilink families=%" PRId64 " people=%" PRId64 " genotypes=%" PRId64 " evaluations=%" PRId64
           " theta=%.4f log_likelihood=%.6f lod=%.3f",
           families, people_here.people_count, people_here.of.genotypes, evaluations, s.best, s.best_found, lod);
    return sum;
}

static void check_numbers(void) {
    if (families < 1 || families > 10000 || children < 1 || children > CHILDREN_MAX || evaluations < 2)
        refuse("ilink", "1 to 10000 families, 1 to 8 children, 2 evaluations or more");
    if (loci < 2 || loci > LOCI_MAX || alleles < 2 || alleles > ALLELES_MAX || untyped > 100)
        refuse("ilink", "2 to 4 loci, 2 to 16 alleles of a marker, 0 to 100 percent untyped");
    if (new_model(loci, alleles).genotypes > 1 << 16) refuse("ilink", "more than 65536 genotypes");
}

static void set_up(allocate *memory) {
    people_here = new_pedigree(new_model(loci, alleles), families, children, untyped, SEED);
    shared = new_pool(&people_here, evaluations, memory);
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--families", &families, NULL, NULL, "nuclear families of the pedigree"},
        {"--children", &children, NULL, NULL, "children of a family at most, 1 to 8"},
        {"--loci", &loci, NULL, NULL, "loci, the disease among them, 2 to 4"},
        {"--alleles", &alleles, NULL, NULL, "alleles of a marker, 2 to 16"},
        {"--untyped", &untyped, NULL, NULL, "percent of the people whose markers are not known"},
        {"--evaluations", &evaluations, NULL, NULL, "likelihoods, after one to warm up"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {4, 3, 2, 4, 30, 3}},
        {"brazos", "in place of Brazos's Amish pedigree", {16, 6, 3, 5, 35, 10}},
        {"large", "a whole valley", {64, 8, 3, 6, 35, 12}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    check_numbers();
    set_up(kernel_shared);
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    int verdict = small_ones_are_right() ? KERNEL_UNCHECKED : KERNEL_WRONG;
    if (verdict != KERNEL_WRONG && (kernel_check || products() <= PRODUCTS_CHECKED))
        verdict = agrees() ? KERNEL_OK : KERNEL_WRONG;
    return kernel_finish(print_result(), verdict);
}
