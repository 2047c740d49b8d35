/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * unwound_worker: the function of a CREATE that is left by an exception.
 */
extern "C" {
#include <compat/comem_parmacs.h>
}

#include <stdexcept>

static void before_main(int argc, char **argv, char **envp) __attribute__((constructor));
static void before_main(int argc, char **argv, char **envp) {
    comem_process_start_(argc, argv, envp, nullptr, nullptr, before_main);
}

static void work() {
    throw std::runtime_error("not caught");
}

int main() {
    comem_create_worker(work);
    comem_wait_workers(1);
    return 0;
}
