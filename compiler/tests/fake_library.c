/* The wrappers of libc's functions that fake.c leaves out: straight to libc. The test programs give them private memory
 * only. */
#define JUMP(to, name)                                                                                                 \
    __asm__(".ifndef " #name "\n.weak " #name "\n.type " #name ",@function\n" #name ": jmp " #to "@PLT\n.endif\n");
#define COMEM_WRAPPED(name, replacement) JUMP(name, replacement)
__asm__(".text");
#include "../wrapped.def"
