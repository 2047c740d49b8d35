/* The C library on shared memory that is not here: node 0 fills it, node 1 uses it by functions whose own code has no
 * checks. Built with `comem-cc --inline`. Prints `ok`, or what went wrong.
 */
#define _GNU_SOURCE
#include <comem.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXTS = 24, ROOM = 512, NUMBERS = 1000 };

struct shared {
    char text[TEXTS][ROOM];
    char line[TEXTS][ROOM];
    int number[NUMBERS];
    int count, small;
    double fraction, sine, cosine;
    struct timespec now;
};

static struct shared *all;
static int failures;

#define EXPECT(condition)                                            \
    do {                                                             \
        if (!(condition)) {                                          \
            printf("line %d: %s\n", __LINE__, #condition);           \
            failures++;                                              \
        }                                                            \
    } while (0)

/* So long a text that it crosses lines. */
static const char *text_of(int index)
{
    static char text[ROOM];
    int used = snprintf(text, sizeof text, "%d ", index * 37);
    for (int i = used; i < 60 + 13 * index; i++) text[i] = (char)('a' + i % 26);
    text[60 + 13 * index] = 0;
    return text;
}

static int ascending(const void *one, const void *other)
{
    int a = *(const int *)one, b = *(const int *)other;
    return (a > b) - (a < b);
}

static void strings(void)
{
    char copy[2 * ROOM];
    size_t (*length)(const char *) = strlen; /* also where only its address is taken */
    for (int i = 0; i < TEXTS; i++) {
        const char *right = text_of(i);
        EXPECT(length(all->text[i]) == strlen(right));
        EXPECT(strcmp(all->text[i], right) == 0);
        EXPECT(memcmp(all->text[i], right, strlen(right) + 1) == 0);
        EXPECT(strchr(all->text[i], 'z') - all->text[i] == strchr(right, 'z') - right);
        EXPECT(atoi(all->text[i]) == i * 37);
        snprintf(copy, sizeof copy, "<%s|%.5s>", all->text[i], all->text[i]);
        EXPECT(strlen(copy) == strlen(right) + 8 && strncmp(copy + 1, right, strlen(right)) == 0);
        strcpy(all->line[i], all->text[i]);
        strcat(all->line[i], "!");
        sprintf(all->line[i] + 300, "%s %d", "text", i);
    }
}

static void values(void)
{
    char word[32];
    qsort(all->number, NUMBERS, sizeof(int), ascending);
    int key = 500;
    int *found = bsearch(&key, all->number, NUMBERS, sizeof(int), ascending);
    EXPECT(found == &all->number[500]);
    EXPECT(sscanf(all->text[3], "%d %31s", &all->count, word) == 2);
    EXPECT(sscanf("2.5 7", "%lf %d", &all->fraction, &all->small) == 2);
    sincos(0.5, &all->sine, &all->cosine);
    EXPECT(clock_gettime(CLOCK_MONOTONIC, &all->now) == 0);
    FILE *file = tmpfile();
    EXPECT(fwrite(all->text, ROOM, TEXTS, file) == TEXTS);
    rewind(file);
    EXPECT(fread(all->line[0], ROOM, 4, file) == 4);
    rewind(file);
    EXPECT(fgets(all->line[5], 200, file) != NULL);
    fclose(file);
}

static void work(void *nothing)
{
    (void)nothing;
    int me = comem_thread();
    if (me == 0) {
        for (int i = 0; i < TEXTS; i++) strcpy(all->text[i], text_of(i));
        for (int i = 0; i < NUMBERS; i++) all->number[i] = (i * 617) % NUMBERS;
    }
    comem_barrier();
    if (me == 1) strings();
    comem_barrier();
    if (me == 0) {
        for (int i = 0; i < TEXTS; i++) {
            char right[ROOM];
            snprintf(right, sizeof right, "text %d", i);
            EXPECT(strcmp(all->line[i] + 300, right) == 0);
            EXPECT(strncmp(all->line[i], text_of(i), 60) == 0);
        }
    }
    comem_barrier();
    if (me == 1) values();
    comem_barrier();
    if (me == 0) {
        for (int i = 0; i < NUMBERS; i++) EXPECT(all->number[i] == i);
        EXPECT(all->count == 111 && all->small == 7 && all->fraction == 2.5);
        EXPECT(fabs(all->sine - 0.479425538604203) < 1e-12 && fabs(all->cosine - 0.877582561890373) < 1e-12);
        EXPECT(all->now.tv_sec != 0 || all->now.tv_nsec != 0);
        for (int i = 0; i < 4; i++) EXPECT(strcmp(all->line[i], text_of(i)) == 0);
        EXPECT(memcmp(all->line[5], all->text[0], 60) == 0);
    }
}

int main(void)
{
    if (comem_start() != 0) return 1;
    all = comem_alloc_all(sizeof *all, &(comem_region_options){.home = COMEM_HOME_ON, .home_number = 0});
    comem_parallel(work, NULL);
    int node = comem_node();
    comem_finish();
    if (failures == 0 && node == 1) printf("ok\n");
    return failures != 0;
}
