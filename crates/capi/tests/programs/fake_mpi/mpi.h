/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * As much of MPI as beside_mpi.c asks for, for machines without its headers: ranks from the environment, broadcasts
 * through files.
 */
#ifndef COMEM_TEST_FAKE_MPI_H
#define COMEM_TEST_FAKE_MPI_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int MPI_Comm;
typedef int MPI_Fint;
typedef int MPI_Datatype;
enum { MPI_SUCCESS = 0, MPI_COMM_WORLD = 91, MPI_BYTE = 1, MPI_INT = 4 };

static inline int MPI_Init(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return MPI_SUCCESS;
}
static inline int MPI_Finalize(void) {
    return MPI_SUCCESS;
}
static inline int MPI_Abort(MPI_Comm comm, int code) {
    (void)comm;
    exit(code);
}
static inline int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    *rank = atoi(getenv("FAKE_RANK"));
    return comm == MPI_COMM_WORLD ? MPI_SUCCESS : 1;
}
static inline int MPI_Comm_size(MPI_Comm comm, int *size) {
    *size = atoi(getenv("FAKE_SIZE"));
    return comm == MPI_COMM_WORLD ? MPI_SUCCESS : 1;
}
static inline MPI_Fint MPI_Comm_c2f(MPI_Comm comm) {
    return comm + 1;
}
static inline MPI_Comm MPI_Comm_f2c(MPI_Fint comm) {
    return comm - 1;
}
static inline int MPI_Bcast(void *bytes, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    static int number;
    const size_t length = (size_t)count * (type == MPI_INT ? sizeof(int) : 1);
    char path[4096], beside[4112];
    FILE *file;
    int rank;
    MPI_Comm_rank(comm, &rank);
    snprintf(path, sizeof path, "%s/%d", getenv("FAKE_DIRECTORY"), number++);
    if (rank == root) {
        snprintf(beside, sizeof beside, "%s.part", path);
        file = fopen(beside, "w");
        if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) return 1;
        return rename(beside, path);
    }
    while (!(file = fopen(path, "r"))) usleep(10000);
    count = fread(bytes, 1, length, file) == length ? MPI_SUCCESS : 1;
    fclose(file);
    return count;
}

#endif
