/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Host 0 sends more messages than an inbox holds, and than a thread puts aside to send, while the others wait at a
 * barrier.
 */
#include "../check.h"
#include <jia.h>

#define MESSAGES 70000

int main(int argc, char **argv) {
    int i, to, number;
    jia_init(argc, argv);
    for (to = 1; jiapid == 0 && to < jiahosts; to++) {
        for (i = 0; i < MESSAGES; i++) jia_send((char *)&i, sizeof i, to, 0);
    }
    jia_barrier();
    for (i = 0; jiapid != 0 && i < MESSAGES; i++) {
        CHECK(jia_recv((char *)&number, sizeof number, 0, 0) == sizeof number && number == i);
    }
    jia_barrier();
    if (jiapid == 0) printf("ok\n");
    jia_exit();
    return 0;
}
