/* What other.c has for calls.c: memory that one thread of each process asks for, in another file. */
#ifdef __cplusplus
extern "C" {
#endif
extern void large_memory(long words);
extern void check_large_memory(int id, int threads, void *barrier);
#ifdef __cplusplus
}
#endif
