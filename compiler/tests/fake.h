/* What the test programs need of the stand-in for libcomem in fake.c. Plain builds have the same in plain.c. */
#ifndef FAKE_H
#define FAKE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Zeros in lines memory; plain builds: calloc. */
void *shared_alloc(size_t bytes);
#ifdef __cplusplus
}
#endif
#endif
