/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Another file of the same program: the hosts' variables are the same ones.
 */
#include <jia.h>

int pid_of_the_other_file(void) { return jiapid; }
int hosts_of_the_other_file(void) { return jiahosts; }
