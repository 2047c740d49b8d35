/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * unwound: functions of the program that Comem calls and that do not return: by an exception, by pthread_exit, by a
 * cancellation.
 */
#include <comem.h>

#include <pthread.h>
#include <stdexcept>
#include <cstdio>
#include <cstring>

static const char *way;

static void leave() {
    if (!std::strcmp(way, "exception")) throw std::runtime_error("not caught");
    if (!std::strcmp(way, "exit")) pthread_exit(nullptr);
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void on_one(void *) {
    comem_barrier();
    if (comem_thread() == comem_threads() - 1) leave();
    comem_barrier();
}

static void on_error(int, const char *, void *) {
    leave();
}

int main(int, char **argv) {
    way = argv[2];
    if (comem_start() != 0) return 1;
    try {
        if (!std::strcmp(argv[1], "parallel")) {
            comem_parallel(on_one, nullptr);
        } else {
            comem_set_error_handler(on_error, nullptr);
            comem_unlock(77);
        }
    } catch (const std::exception &) {
        std::puts("unwound: an exception came through Comem");
        return 9;
    }
    return comem_finish() != 0;
}
