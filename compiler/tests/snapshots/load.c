// The test of a load by its value, and what need not be tested.
// FLAGS: -O2 -fno-vectorize -fno-unroll-loops -fomit-frame-pointer
#include <stdlib.h>

// CHECK-LABEL: {{^}}word:
// CHECK: movl (%rdi), [[V:%e..]]
// CHECK-NEXT: cmpl $-131075, [[V]]
// CHECK-NEXT: j{{n?}}e
// CHECK: callq __comem_inline_load4_sse
int word(int *p) { return *p + 1; }

// CHECK-LABEL: {{^}}pointer:
// CHECK: movq (%rdi), %r[[V:..]]
// CHECK-NEXT: cmpl $-131075, %e[[V]]
void *pointer(void **p) { return *p; }

// 0xfd and 0xff, and 0xfe for nothing.
// CHECK-LABEL: {{^}}byte:
// CHECK: movzbl (%rdi), %eax
// CHECK-NEXT: cmpb $-4, %al
// CHECK-NEXT: ja
int byte(unsigned char *p) { return *p; }

// A bool's range is forgotten: MAGIC is none of 0 and 1.
// CHECK-LABEL: {{^}}flag:
// CHECK: cmpb $-4, %al
int flag(_Bool *p) { return *p; }

// Each word of a wide integer is loaded once: what is tested is what the program gets.
// CHECK-LABEL: {{^}}wide:
// CHECK: movq (%rdi), %r[[LOW:..]]
// CHECK-NEXT: cmpl $-131075, %e[[LOW]]
// CHECK-NEXT: je
// CHECK-NOT: (%rdi)
// CHECK: movq 8(%rdi), %r[[HIGH:..]]
// CHECK-NEXT: cmpl $-131075, %e[[HIGH]]
// CHECK-NEXT: je
// CHECK-NOT: (%rdi)
// CHECK: addq $3, %r[[LOW]]
// CHECK-NEXT: adcq $0, %r[[HIGH]]
__int128 wide(__int128 *p) { return *p + 3; }

// A pointer that two lines may share has two words.
// CHECK-LABEL: {{^}}halves:
// CHECK: movq 4(%rdi), %r[[V:..]]
// CHECK: -131075
// CHECK: shrq $32
// CHECK: -131075
// CHECK: retq
struct __attribute__((packed, aligned(4))) halves { int first; void *pointer; };
void *halves(struct halves *p) { return p->pointer; }

// Two values share one comparison.
// CHECK-LABEL: {{^}}reals:
// CHECK: movsd (%rdi), [[A:%xmm.]]
// CHECK: movsd (%rsi), [[B:%xmm.]]
// CHECK: ucomisd {{%xmm., %xmm.}}
// CHECK-NEXT: jp
int reals(double *a, double *b) { return *a < *b; }

// A product is NaN if a factor is: it is tested in their place.
// CHECK-LABEL: {{^}}product:
// CHECK: movsd (%rdi), [[P:%xmm.]]
// CHECK-NEXT: mulsd (%rsi), [[P]]
// CHECK-NEXT: ucomisd [[P]], [[P]]
// CHECK-NEXT: jp
// CHECK-NOT: ucomisd
// CHECK: retq
double product(double *a, double *b) { return *a * *b; }

// An address is tested before it is used.
// CHECK-LABEL: {{^}}chain:
// CHECK: movq (%rdi), %r[[V:..]]
// CHECK-NEXT: cmpl $-131075, %e[[V]]
// CHECK-NEXT: je
// CHECK: movl (%r[[V]]), [[W:%e..]]
// CHECK-NEXT: cmpl $-131075, [[W]]
int chain(int **p) { return **p; }

// CHECK-LABEL: {{^}}not_shared:
// CHECK-NOT: -131075
// CHECK: retq
static int global[100];
_Thread_local int thread[100];
int not_shared(int i) {
    int local[10], *fresh = malloc(40);
    for (int j = 0; j < 10; j++) ((volatile int *)local)[j] = j, ((volatile int *)fresh)[j] = j;
    return ((volatile int *)local)[i] + ((volatile int *)global)[i] + ((volatile int *)thread)[i] +
           ((volatile int *)fresh)[i];
}

// Arguments of an internal function that are private in every call.
// CHECK-LABEL: {{^}}inner:
// CHECK-NOT: -131075
// CHECK: retq
static __attribute__((noinline)) int inner(volatile int *p) { return p[0] + p[1]; }
int outer(void) {
    volatile int local[2] = {1, 2};
    return inner(local) + inner(global);
}
