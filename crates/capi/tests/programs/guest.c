/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * One process of a job that somebody else starts: guest WAY RANK PROCESSES FILE. The id goes through the file.
 */
#define _DEFAULT_SOURCE
#include <comem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* Process 0 writes, the others wait until all is there. */
static int by_file(void *bytes, size_t length, void *argument) {
    const char *path = (const char *)argument;
    const char *rank = getenv("GUEST_RANK");
    char beside[4096];
    FILE *file;
    if (rank && strcmp(rank, "0") == 0) {
        snprintf(beside, sizeof beside, "%s.part", path);
        file = fopen(beside, "w");
        if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) return 1;
        return rename(beside, path);
    }
    while (!(file = fopen(path, "r"))) usleep(10000);
    length = fread(bytes, 1, length, file) == length ? 0 : 1;
    fclose(file);
    return (int)length;
}

static void work(void *unused) {
    (void)unused;
    comem_lock(1);
    comem_unlock(1);
    comem_barrier();
}

/* What makes no sense is refused, and then a right start succeeds. */
static void refusals(comem_attr attr) {
    comem_attr wrong = attr;
    comem_id id;
    const char *const settings[] = {"colour=red", NULL};
    wrong.size = 3;
    CHECK(comem_start_attr(&wrong) == COMEM_E_ARGUMENT);
    CHECK(strstr(comem_last_error(), "comem_attr_init() first"));
    wrong = attr;
    memset(&id, 0, sizeof id);
    wrong.unique_id = &id;
    CHECK(comem_start_attr(&wrong) == COMEM_E_ARGUMENT);
    CHECK(strstr(comem_last_error(), "no id of a job"));
    wrong = attr;
    wrong.rank = wrong.processes;
    CHECK(comem_start_attr(&wrong) == COMEM_E_ARGUMENT);
    CHECK(strstr(comem_last_error(), "ranks go from 0 to"));
    wrong = attr;
    wrong.settings = settings;
    CHECK(comem_start_attr(&wrong) == COMEM_E_ARGUMENT);
    CHECK(strstr(comem_last_error(), "colour"));
    CHECK(comem_unique_id(NULL) == COMEM_E_ARGUMENT);
}

int main(int argc, char **argv) {
    const char *const settings[] = {"backbone=udp", "start-timeout=20s", NULL};
    comem_attr attr;
    comem_id id;
    comem_array_i64 sum;
    if (argc != 5) return 2;
    setenv("GUEST_RANK", argv[2], 1);
    comem_attr_init(&attr);
    attr.rank = atoi(argv[2]);
    attr.processes = atoi(argv[3]);
    attr.threads = 2;
    attr.engine = "msi";
    attr.settings = settings;
    if (strcmp(argv[1], "broadcast") == 0) {
        attr.broadcast = by_file;
        attr.broadcast_argument = argv[4];
    } else {
        memset(&id, 0, sizeof id);
        if (attr.rank == 0) CHECK(comem_unique_id(&id) == 0);
        CHECK(by_file(&id, sizeof id, argv[4]) == 0);
        attr.unique_id = &id;
        refusals(attr);
    }
    if (comem_start_attr(&attr) != 0) {
        printf("failed: %s\n", comem_last_error());
        return 3;
    }
    sum = comem_new_i64(1, NULL);
    comem_parallel(work, NULL);
    comem_lock(1);
    comem_write_i64(sum, 0, comem_read_i64(sum, 0) + 1 + comem_node());
    comem_unlock(1);
    comem_node_barrier();
    printf("node %d of %d, %d threads each, sum %lld\n", comem_node(), comem_nodes(), comem_threads_per_node(),
           (long long)comem_read_i64(sum, 0));
    CHECK(comem_finish() == 0);
    return failures != 0;
}
