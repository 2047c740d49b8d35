// Accesses of every width and kind to shared memory. Prints sums that the plain build prints too.
#define _GNU_SOURCE
#include "../fake.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
static uint64_t sum;
static void mix(uint64_t x) { sum = (sum ^ x) * 0x9e3779b97f4a7c15ull + (sum >> 29); }

#define WIDTH(T, name)                                                                                                 \
    static NOINLINE void write_##name(T *p, int n) {                                                                   \
        for (int i = 0; i < n; i++) p[i] = (T)(i * 7 - 100);                                                           \
    }                                                                                                                  \
    static NOINLINE int64_t read_##name(const T *p, int n) {                                                           \
        int64_t out = 0;                                                                                               \
        for (int i = 0; i < n; i++) out += (int64_t)p[i];                                                              \
        return out;                                                                                                    \
    }                                                                                                                  \
    static NOINLINE void update_##name(T *p, int n, T by) {                                                            \
        for (int i = n - 1; i >= 0; i -= 3) p[i] += by;                                                                \
    }                                                                                                                  \
    static void test_##name(int n) {                                                                                   \
        T *p = shared_alloc(n * sizeof(T));                                                                            \
        for (int round = 0; round < 20; round++) {                                                                     \
            write_##name(p, n);                                                                                        \
            update_##name(p, n, 3);                                                                                    \
            mix(read_##name(p, n));                                                                                    \
        }                                                                                                              \
    }
WIDTH(int8_t, i8)
WIDTH(uint8_t, u8)
WIDTH(int16_t, i16)
WIDTH(uint16_t, u16)
WIDTH(int32_t, i32)
WIDTH(uint32_t, u32)
WIDTH(int64_t, i64)
WIDTH(__int128, i128)
typedef unsigned _BitInt(256) u256;
WIDTH(u256, u256)
WIDTH(__float128, f128)
WIDTH(float, f32)
WIDTH(double, f64)
WIDTH(long double, f80)

typedef double v4 __attribute__((vector_size(32)));
typedef int w8 __attribute__((vector_size(32)));
typedef short h3 __attribute__((vector_size(8)));
struct vectors {
    v4 a;
    w8 b;
    h3 c;
};
static NOINLINE void vectors_step(struct vectors *p, int n) {
    for (int i = 0; i < n; i++) {
        p[i].a = p[i].a * 2.0 + 1.0;
        p[i].b = p[i].b + (w8){1, 2, 3, 4, 5, 6, 7, 8};
        p[i].c = p[i].c - (h3){1, 1, 2, 3};
    }
}
static void test_vectors(void) {
    struct vectors *p = shared_alloc(100 * sizeof *p);
    for (int round = 0; round < 20; round++) vectors_step(p, 100);
    for (int i = 0; i < 100; i++) mix((uint64_t)p[i].a[3] + p[i].b[7] + p[i].c[2]);
}

// Vectors that no register holds: those of the program, and those that the vectoriser makes of short loops.
typedef double w16 __attribute__((vector_size(128)));
typedef short h64 __attribute__((vector_size(128), aligned(4)));
struct wide {
    w16 a;
    h64 b;
    int64_t counts[16];
    int32_t odd[23];
};
static NOINLINE void wide_step(struct wide *p, int n) {
    for (int i = 0; i < n; i++) {
        p[i].a = p[i].a * 0.5 + (double)i;
        p[i].b = p[i].b + (short)i;
        for (int k = 0; k < 16; k++) p[i].counts[k] += k * i;
        for (int k = 0; k < 23; k++) p[i].odd[k] -= k + i;
    }
}
static NOINLINE int64_t wide_sum(const struct wide *p, int n) {
    int64_t out = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 16; k++) out += p[i].counts[k];
        int32_t least = 0;
        for (int k = 0; k < 23; k++) least = p[i].odd[k] < least ? p[i].odd[k] : least;
        out += (int64_t)p[i].a[13] + p[i].b[61] + least;
    }
    return out;
}
static void test_wide(void) {
    struct wide *p = shared_alloc(40 * sizeof *p);
    for (int round = 0; round < 20; round++) {
        wide_step(p, 40);
        mix(wide_sum(p, 40));
    }
}

struct fields {
    unsigned a : 3, b : 11;
    signed c : 7;
    uint64_t d : 40;
    char tag;
    union {
        double real;
        int64_t whole;
        unsigned char bytes[8];
    } u;
    struct fields *next;
    _Bool flag;
};
static NOINLINE void fields_set(struct fields *p, int i) {
    p->a = i, p->b = i * 5, p->c = -i, p->d = (uint64_t)i << 33;
    p->tag = (char)(i - 3), p->flag = i & 1;
    p->u.real = i * 0.5;
    p->u.bytes[0] ^= 0xff;
}
static NOINLINE uint64_t fields_get(const struct fields *p) {
    return p->a + p->b * 3u + p->c + p->d + p->tag + p->u.whole + (p->flag ? 1000 : 1);
}
static void test_fields(void) {
    enum { N = 200 };
    struct fields *p = shared_alloc(N * sizeof *p), *list = 0;
    for (int i = 0; i < N; i++) {
        fields_set(&p[i * 37 % N], i);
        p[i].next = list, list = &p[i];
    }
    for (int round = 0; round < 20; round++)
        for (struct fields *at = list; at; at = at->next) mix(fields_get(at));
}

struct __attribute__((packed)) odd {
    char c;
    int i;
    double d;
    short s;
    int64_t l;
};
static NOINLINE void odd_step(struct odd *p, int n) {
    for (int i = 0; i < n; i++) {
        p[i].i += i, p[i].d += i * 0.25, p[i].s -= 1, p[i].l ^= (int64_t)i << 35, p[i].c++;
    }
}
static void test_odd(void) {
    struct odd *p = shared_alloc(300 * sizeof *p);
    for (int round = 0; round < 15; round++) odd_step(p, 300);
    for (int i = 0; i < 300; i++) mix(p[i].i + (int64_t)p[i].d + p[i].s + p[i].l + p[i].c);
}

/* Pointers whose halves may be in two lines. */
struct __attribute__((packed, aligned(4))) halves {
    int number;
    char *pointer;
};
static NOINLINE void halves_step(struct halves *p, int n) {
    for (int i = 0; i < n; i++) p[i].pointer += p[i].number;
}
static void test_halves(void) {
    struct halves *p = shared_alloc(300 * sizeof *p);
    for (int i = 0; i < 300; i++) p[i].number = i, p[i].pointer = (char *)0x123456789a;
    for (int round = 0; round < 30; round++) halves_step(p, 300);
    for (int i = 0; i < 300; i++) mix((uint64_t)p[i].pointer);
}

struct big {
    double x[3];
    int n;
    char text[41];
};
static NOINLINE struct big by_value(struct big b, int by) {
    b.x[1] += by, b.n -= by, b.text[40] ^= by;
    return b;
}
static NOINLINE void copy_big(struct big *to, const struct big *from) { *to = *from; }
static NOINLINE void copy_small(double (*to)[3], double (*from)[3]) { memcpy(to, from, sizeof *to); }
static void test_copies(void) {
    struct big *p = shared_alloc(64 * sizeof *p), local;
    double(*q)[3] = shared_alloc(64 * sizeof *q);
    memset(&local, 0x5a, sizeof local);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 64; i++) {
            local.n = i, local.x[0] = round, local.x[1] = i, local.x[2] = 2 * i;
            copy_big(&p[i], i % 3 ? &local : &p[(i + 5) % 64]);
            p[i] = by_value(p[(i * 7) % 64], round);
            copy_small(&q[i], (double(*)[3])p[i].x);
            memmove(&p[i].text[1], &p[i].text[0], 40);
            memset(p[i].text + 3, i, i % 37);
        }
        memmove(q + 1, q, 63 * sizeof *q);
        memcpy(&local, &p[round], sizeof local);
        mix(local.n + (uint64_t)local.x[1] + local.text[40] + local.text[7]);
    }
    for (int i = 0; i < 64; i++) mix((uint64_t)q[i][0] + (uint64_t)q[i][1] * 3 + (uint64_t)q[i][2] * 7);
}

static NOINLINE int64_t many(int n, ...) {
    va_list ap, again;
    int64_t out = 0;
    va_start(ap, n);
    va_copy(again, ap);
    for (int i = 0; i < n; i++) out += *va_arg(ap, int *);
    for (int i = 0; i < n; i++) out += 3 * *va_arg(again, int *);
    va_end(ap);
    va_end(again);
    return out;
}
struct tree {
    struct tree *left, *right;
    int key, depth;
};
static NOINLINE struct tree *insert(struct tree *t, struct tree *node, int depth) {
    if (!t) {
        node->depth = depth;
        return node;
    }
    if (node->key < t->key) t->left = insert(t->left, node, depth + 1);
    else t->right = insert(t->right, node, depth + 1);
    return t;
}
static NOINLINE int64_t walk(const struct tree *t) {
    return t ? walk(t->left) * 3 + walk(t->right) + t->key + t->depth : 1;
}
static void test_calls(void) {
    int *p = shared_alloc(100 * sizeof *p);
    for (int i = 0; i < 100; i++) p[i] = i;
    for (int i = 0; i < 90; i++) mix(many(5, p + i, p + i + 1, p + i + 2, p + i + 3, p + i + 9));
    struct tree *nodes = shared_alloc(300 * sizeof *nodes), *root = 0;
    for (int i = 0; i < 300; i++) {
        nodes[i].key = i * 7919 % 1009;
        root = insert(root, &nodes[i], 0);
    }
    for (int round = 0; round < 20; round++) mix(walk(root));
}

static jmp_buf back;
static NOINLINE void jump_if(int *p) {
    if (++*p % 5 == 0) longjmp(back, *p);
}
static void test_jumps(void) {
    int *volatile p = shared_alloc(sizeof *p);
    int seen = setjmp(back);
    mix(seen);
    while (*p < 200) jump_if(p);
}

// A machine whose code lies in shared memory, with computed gotos and a stack of variable size.
static NOINLINE int64_t machine(const unsigned char *code, int *memory, int n) {
    static void *const labels[] = {&&push, &&add, &&store, &&load, &&jump, &&end};
    int64_t stack[n], *top = stack;
    int at = 0, rounds = 0;
    *top = 0;
    goto *labels[code[at]];
push:
    *++top = code[at + 1];
    at += 2;
    goto *labels[code[at]];
add:
    top--;
    *top += top[1];
    at++;
    goto *labels[code[at]];
store:
    memory[code[at + 1]] = (int)*top--;
    at += 2;
    goto *labels[code[at]];
load:
    *++top = memory[code[at + 1]];
    at += 2;
    goto *labels[code[at]];
jump:
    at = rounds++ < 300 ? 0 : at + 1;
    goto *labels[code[at]];
end:
    return *top;
}
static void test_machine(void) {
    static const unsigned char code[] = {3, 0, 0, 7, 1, 2, 0, 3, 1, 3, 0, 1, 2, 1, 4, 3, 1, 3, 0, 1, 5};
    unsigned char *p = shared_alloc(sizeof code);
    int *memory = shared_alloc(64);
    memcpy(p, code, sizeof code);
    mix(machine(p, memory, 64));
}

// Data that looks like an invalid unit, and NaNs of all kinds.
static NOINLINE void look_alikes(uint32_t *p, double *d, unsigned char *b, uint16_t *h, int n) {
    for (int i = 0; i < n; i++) {
        p[i] = i % 3 ? 0xfffdfffd : (uint32_t)i;
        uint64_t bits = i % 5 == 0   ? 0xfffdfffdfffdfffd
                        : i % 5 == 1 ? 0x7ff8000000000001
                        : i % 5 == 2 ? 0x00000000fffdfffd
                                     : i;
        memcpy(&d[i], &bits, 8);
        b[i] = i % 2 ? 0xff : 0xfd, h[i] = 0xfffd;
    }
}
static NOINLINE uint64_t bits_of(const double *p) {
    double d = *p;
    uint64_t out;
    memcpy(&out, &d, 8);
    return out;
}
static void test_look_alikes(void) {
    enum { N = 300 };
    uint32_t *p = shared_alloc(N * 4);
    double *d = shared_alloc(N * 8);
    unsigned char *b = shared_alloc(N);
    uint16_t *h = shared_alloc(N * 2);
    for (int round = 0; round < 5; round++) {
        look_alikes(p, d, b, h, N);
        for (int i = 0; i < N; i++) mix(p[i] + bits_of(d + i) * 3 + b[i] + h[i]);
    }
}

static NOINLINE void scale(double *restrict a, const double *restrict b, int n, double by) {
    for (int i = 0; i < n; i++) a[i] = a[i] + by * b[i];
}
static NOINLINE void where(int *restrict a, const int *restrict b, const int *restrict index, int n) {
    for (int i = 0; i < n; i++)
        if (b[i] > 3) a[i] = b[index[i]] + a[i];
}
static NOINLINE void shift(int *a, int n) {
    for (int i = 1; i < n; i++) a[i] = a[i - 1] + a[i];
}
static NOINLINE void transpose(double *a, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            double t = a[i * n + j];
            a[i * n + j] = a[j * n + i];
            a[j * n + i] = t;
        }
}
static NOINLINE void wave(double (*a)[64], double (*b)[64], int n) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < 63; j++) a[i][j] = (b[i - 1][j] + b[i + 1][j] + b[i][j - 1] + b[i][j + 1]) * 0.25;
}
static NOINLINE void halves(float *a, int n, int step) {
    for (int i = 0; i < n; i += step) a[i] = a[i] * 0.5f + (float)i;
}
static NOINLINE void down(short *a, int n) {
    for (int i = n; i-- > 0;) a[i] = (short)(a[i] * 3 + i);
}
static void test_loops(void) {
    enum { N = 1000 };
    double *a = shared_alloc(N * 8), *b = shared_alloc(N * 8);
    int *c = shared_alloc(N * 4), *d = shared_alloc(N * 4), *e = shared_alloc(N * 4);
    float *f = shared_alloc(N * 4);
    short *s = shared_alloc(N * 2);
    for (int i = 0; i < N; i++)
        a[i] = i, b[i] = N - i, c[i] = i, d[i] = i % 11, e[i] = i * 7 % N, f[i] = (float)i, s[i] = (short)i;
    for (int round = 0; round < 15; round++) {
        scale(a + round, b + 2 * round, N - 40, 2);
        scale(a + 1, b, round % 5, 1);
        where(c + round, d + 1, e, N - 40);
        shift(d, N - round);
        transpose(a, 30);
        wave((double(*)[64])a, (double(*)[64])b, 15);
        wave((double(*)[64])b, (double(*)[64])a, 15);
        halves(f + round, N - 40, round % 4 + 1);
        down(s + round, N - 2 * round);
        for (int i = 0; i < N; i++)
            b[i] = (double)(int64_t)b[i], a[i] = (double)((int64_t)a[i] & 0xffff), f[i] = (float)(int)f[i];
    }
    for (int i = 0; i < N; i++) mix((uint64_t)a[i] + 3 * (uint64_t)b[i] + c[i] + d[i] + (uint64_t)f[i] + s[i]);
}
// Addresses of what a loop stores to, loaded from shared memory: such a load may miss, and then one in the loop.
struct rows {
    double **to, **from;
    long rows, columns;
};
static NOINLINE void rows_add(struct rows *r, double by) {
    for (long i = 0; i < r->rows; i++) {
        double *to = r->to[i], *from = r->from[i];
        for (long j = 0; j < 40; j++) to[j] = to[j] * 0.5 + from[j] * by;
    }
}
static NOINLINE void blocks_add(struct rows *r, long block) {
    double *to = r->to[block], *from = r->from[block + 1];
    for (long i = 0; i < 8; i++)
        for (long j = 0; j < 8; j++) to[i * 8 + j] -= from[j * 8 + i] * 0.25;
}
static void test_rows(void) {
    enum { N = 24 };
    struct rows *r = shared_alloc(sizeof *r);
    r->to = shared_alloc(N * sizeof *r->to), r->from = shared_alloc(N * sizeof *r->from);
    r->rows = N;
    for (int i = 0; i < N; i++) {
        r->to[i] = shared_alloc(64 * sizeof(double)), r->from[i] = shared_alloc(64 * sizeof(double));
        for (int j = 0; j < 64; j++) r->to[i][j] = i + j, r->from[i][j] = i * j;
    }
    for (int round = 0; round < 200; round++) {
        rows_add(r, 0.125);
        for (int i = 0; i + 1 < N; i++) blocks_add(r, i);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < 64; j++) r->to[i][j] = (double)((int64_t)r->to[i][j] % 1000);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < 64; j++) mix((uint64_t)(int64_t)r->to[i][j]);
}

int main(void) {
#define RUN(call)                                                                                                      \
    call;                                                                                                              \
    printf("%-24s %016lx\n", #call, (unsigned long)sum);
    RUN(test_i8(1000))
    RUN(test_u8(1000)) RUN(test_i16(777)) RUN(test_u16(777)) RUN(test_i32(500)) RUN(test_u32(500)) RUN(test_i64(400))
        RUN(test_i128(100)) RUN(test_u256(100)) RUN(test_f128(100)) RUN(test_f32(500)) RUN(test_f64(400))
            RUN(test_f80(100)) RUN(test_vectors())
            RUN(test_wide())
            RUN(test_fields()) RUN(test_odd()) RUN(test_halves()) RUN(test_copies()) RUN(test_calls()) RUN(test_jumps())
                RUN(test_machine()) RUN(test_look_alikes()) RUN(test_loops())
                    RUN(test_rows()) return 0;
}
