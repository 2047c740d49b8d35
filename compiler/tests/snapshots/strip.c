// A loop that stores to consecutive addresses: one range of hazards for up to 4 KiB, and a plain vector loop in it.
// FLAGS: -O2 -fomit-frame-pointer

// CHECK-LABEL: {{^}}scale:
// CHECK: shlq $48,
// CHECK: cmpw $0,
// CHECK: callq __comem_inline_own_sse
// CHECK: cmpunordpd
// CHECK: movmskpd
// CHECK-NOT: cmpw
// CHECK: movupd %xmm{{[0-9]+}}, ({{.*}}
// CHECK-NEXT: movupd %xmm{{[0-9]+}}, 16({{.*}}
// CHECK: callq __comem_inline_own_again_sse
void scale(double *restrict a, const double *restrict b, long n, double by) {
    for (long i = 0; i < n; i++) a[i] = by * b[i];
}
