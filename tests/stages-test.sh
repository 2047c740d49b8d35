#!/usr/bin/env bash
# The summary of tests/stages.sh counts every line that reports, names what failed, and shows what it said last. Run on
# stages that are made up, in a shell of their own.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# has WHAT LINE…: the lines stand one right after the other in what was printed.
has() {
    local what=$1 wanted
    shift
    wanted=$(printf '%s\n' "$@")
    if [[ $printed == *"$wanted"* ]]; then
        echo "ok: $what"
    else
        sed 's/^/  | /' <<<"$printed"
        echo "FAILED: $what; not there: $1"
        status=1
    fi
}

# What `cargo test --no-fail-fast -- --show-output` prints, of one target with failures, one without and one that dies.
cat >"$work/cargo" <<'END'
     Running tests/exec.rs (target/debug/deps/exec-0a1b)

running 3 tests
test passes ... ok
test a_first ... FAILED
test a_second ... FAILED

successes:

---- passes stdout ----
not a word of this

successes:
    passes

failures:

---- a_first stdout ----

thread 'a_first' panicked at crates/cli/tests/exec.rs:7:5:
assertion `left == right` failed

---- a_second stdout ----
early
END
seq 40 | sed 's/^/line /' >>"$work/cargo"
cat >>"$work/cargo" <<'END'

failures:
    a_first
    a_second

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p comem-cli --test exec`
     Running tests/good.rs (target/debug/deps/good-0a1b)

running 1 test
test good ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/dies.rs (target/debug/deps/dies-0a1b)

running 1 test
error: test failed, to rerun pass `-p comem-net --test dies`

Caused by:
  process didn't exit successfully: `dies` (signal: 11, SIGSEGV: invalid memory reference)
END

cat >"$work/stages" <<'END'
. tests/stages.sh
quiet() { echo "nothing to report"; }
fails() { echo one; echo two; return 3; }
mixed() {
    echo "ok: first"
    seq 30
    echo "FAILED: second"
    echo "SKIP: third: no tool"
    echo "SKIP: fourth: no tool"
}
tap() {
    echo "ok 1 - fine"
    echo "not ok 2 - wrong"
    echo "#   err: why it is wrong"
    echo "ok 3 - left out # SKIP not here"
    echo "1..3"
}
rust() { cat "$1"; report_rust_failures "$1"; return 1; }
stage "a quiet one" quiet
stage "one that fails" fails
stage "mixed" mixed
stage "in TAP" tap
stage "Rust tests" rust "$1"
run_stages
END
printed=$(bash "$work/stages" "$work/cargo" 2>&1)
ended=$?
has "the way is shown" "== stage 3 of 5: mixed"
has "the last line counts all lines" "$(printf '\n%s' "3 passed, 4 failed, 3 skipped")"
has "what was skipped is named" "What was skipped:" "SKIP: third: no tool" "SKIP: fourth: no tool" \
    "ok 3 - left out # SKIP not here"
has "a status is a failure, with what was said last" "stage 2, one that fails:" "FAILED: one that fails (status 3)" \
    "    | one" "    | two"
has "a line of a failure has the lines before it" "stage 3, mixed:" "FAILED: second" "    | 16" "    | 17"
has "TAP has its reasons behind it" "stage 4, in TAP:" "not ok 2 - wrong" "    | #   err: why it is wrong"
has "failed Rust tests are named" "FAILED: Rust tests: a_first, a_second, the test program ended early"
has "with the way to run one again" "  a_first   (cargo test -p comem-cli --test exec)" \
    "    | thread 'a_first' panicked at crates/cli/tests/exec.rs:7:5:"
has "and the last lines" "  a_second   (cargo test -p comem-cli --test exec)" "    | line 26"
has "also of a program that died" "  the test program ended early   (cargo test -p comem-net --test dies)"
has "the table of stages" "   1 passed   1 failed   2 skipped  mixed"

# Each of two stages waits for the other. The third runs when its lane's first has ended, the last when all have.
cat >"$work/lanes" <<'END'
. tests/stages.sh
met() {
    touch "$work/$1"
    for _ in {1..600}; do
        [ -e "$work/$2" ] && echo "ok: $1 has met $2" && return
        sleep 0.1
    done
    return 1
}
third() { [ -e "$work/left" ] && echo "FAILED: third"; }
last() { [ -e "$work/right" ] && [ -e "$work/left" ]; }
lane
stage "on the left" met left right
stage "behind it" third
lane
stage "on the right" met right left
end_lanes
stage "the last" last
run_stages
END
if [ "$ended" = 1 ] && [ "$(tail -n 1 <<<"$printed")" = "3 passed, 4 failed, 3 skipped" ]; then
    echo "ok: it ends with a failure, and the counts stand last"
else
    echo "FAILED: it ends with $ended: $(tail -n 1 <<<"$printed")"
    status=1
fi
printed=$(work=$work bash "$work/lanes" 2>&1)
has "lanes run side by side" "== stage 1 of 4: on the left" "ok: left has met right"
has "a failure in a lane is shown" "stage 2, behind it:" "FAILED: third"
has "what follows waits for all lanes" "== stage 4 of 4: the last" "ok: the last"
has "all lanes are counted" "$(printf '\n%s' "3 passed, 1 failed, 0 skipped")"
exit "$status"
