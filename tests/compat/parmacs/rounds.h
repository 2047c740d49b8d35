/* SPDX-License-Identifier: MIT OR Apache-2.0: what the two files of rounds share. */
struct shared {
    LOCKDEC(lock)
    long begun, round, errors;
    long *sums;
};

extern struct shared *shared;
extern long workers_now;
extern long other_number(void);
extern void set_other_number(long number);
