/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Another file of the same program: its variables are distributed like any others.
 */
#include "tmk.h"

int *pointer_of_the_other_file;

unsigned process_of_the_other_file(void) { return Tmk_proc_id; }
