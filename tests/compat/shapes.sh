# Which of all combinations of engines, nodes, threads and networks run: to be read by tests/compat/GROUP/run.sh.

# every: whether all combinations are wanted. `make soak` says so (COMEM_TEST_EVERY=1).
every() { [ "${COMEM_TEST_EVERY:-0}" != 0 ]; }

# is_wanted A B C [D]: whether a combination runs, of choices that are counted from 0: two with any number (A and B),
# and one or two with two each (C and D). All run where every one is wanted. Else each A meets each B once, with the C
# and D that let each two choices of different kinds meet somewhere.
is_wanted() {
    every && return
    [ $((($1 + $2) % 2)) = "$3" ] && [ $((($1 + $2 / 2) % 2)) = "${4:-$((($1 + $2 / 2) % 2))}" ]
}
