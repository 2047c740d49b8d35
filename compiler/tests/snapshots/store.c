// The check of a store by its line's entry, inside a hazard.
// FLAGS: -O2 -fno-vectorize -fno-unroll-loops -fomit-frame-pointer

// CHECK-LABEL: {{^}}one:
// CHECK: movq __comem_hazard@GOTTPOFF(%rip), [[T:%r..]]
// CHECK: movq %fs:([[T]]), [[H:%r..]]
// CHECK: testq [[H]], [[H]]
// CHECK: movq [[P:%r..]], ([[H]])
// CHECK: shrq $6, [[E:%r..]]
// CHECK-NEXT: cmpw $0, 2147418112([[E]],[[E]])
// CHECK-NEXT: jne
// CHECK: movl %esi, (%rdi)
// CHECK: movq $0, ([[H]])
// CHECK-DAG: callq __comem_inline_store4_sse
// CHECK-DAG: callq __comem_inline_enter_sse
void one(int *p, int x) { *p = x; }

// Neighbours share one hazard of two lines; both lines' entries are checked.
// CHECK-LABEL: {{^}}three:
// CHECK: movabsq $562949953421312
// CHECK: cmpw $0,
// CHECK: leaq 23(
// CHECK: cmpw $0,
// CHECK: movsd %xmm0, (%rdi)
// CHECK-NEXT: movsd %xmm1, 8(%rdi)
// CHECK-NEXT: movsd %xmm2, 16(%rdi)
// CHECK: movq $0,
// CHECK-NOT: cmpw
// CHECK: callq __comem_inline_store8_sse
// CHECK: callq __comem_inline_store8_sse
// CHECK: callq __comem_inline_store8_sse
void three(double *p, double a, double b, double c) { p[0] = a, p[1] = b, p[2] = c; }

// CHECK-LABEL: {{^}}count:
// CHECK: cmpw $0,
// CHECK: lock {{.*}}xaddl
// CHECK: movq $0,
// CHECK: callq __comem_inline_atomic_sse
int count(int *p) { return __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST); }

// CHECK-LABEL: {{^}}copy:
// CHECK: callq __comem_inline_memcpy
void copy(char *to, const char *from, unsigned long n) { __builtin_memcpy(to, from, n); }

// A store that passes by the caches would come after the hazard is lowered.
// CHECK-LABEL: {{^}}past_the_caches:
// CHECK-NOT: movnt
// CHECK: retq
void past_the_caches(long *p) { __builtin_nontemporal_store(5l, p); }
