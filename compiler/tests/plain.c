#include "fake.h"
#include <stdlib.h>

void *shared_alloc(size_t bytes) { return aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) ?: (abort(), (void *)0); }
