# Runs stages of tests and says in the end what came of them: to be read by tests/all.sh. Stages run one after the
# other. Those between `lane` and `end_lanes` run beside those of other lanes: much of what they do is waiting.
#
# A stage is a command. It reports by lines that begin with `ok: `, `FAILED: ` or `SKIP: `, or in the form of TAP (`ok 3
# - …`, `not ok 4 - …`, `ok 5 - … # SKIP …`). One without such lines counts by its status. What a stage prints right
# before a failure's line (in TAP also the `#` lines after it) is taken for the reason. A stage that knows better writes
# the reasons of all its failures to the file $COMEM_TEST_REASONS.

passed_lines='^ok(: | [0-9]+ - )'
failed_lines='^(FAILED: |not ok )'
skipped_lines='^SKIP: |^ok [0-9]+ - .* # SKIP'
# So many lines of a reason are shown.
reason_lines=15

stage_names=() stage_commands=() stage_lanes=() lanes=0 current_lane=0

# stage NAME COMMAND…: adds a stage.
stage() {
    stage_names+=("$1") stage_lanes+=("$current_lane")
    shift
    stage_commands+=("$(printf '%q ' "$@")")
}

# lane: the stages that follow run one after the other, beside those of the lanes right before and after.
lane() {
    lanes=$((lanes + 1)) current_lane=$lanes
}

# end_lanes: the stages that follow run when all lanes have ended.
end_lanes() { current_lane=0; }

# run_stages: runs all stages, and prints the summary. Its last line counts passed, failed and skipped lines. Fails if a
# line says so.
run_stages() {
    stages_work=$(mktemp -d)
    trap 'rm -rf "$stages_work"' EXIT
    local number=0 lane passed=0 failed=0 skipped=0
    local -a running
    while [ "$number" -lt ${#stage_names[@]} ]; do
        if [ "${stage_lanes[$number]}" = 0 ]; then
            begin_line "$number"
            run_stage "$number" | tee_log "$number"
            account_stage "$number"
            number=$((number + 1))
            continue
        fi
        running=()
        while [ "$number" -lt ${#stage_names[@]} ] && [ "${stage_lanes[$number]}" != 0 ]; do
            lane=${stage_lanes[$number]}
            run_lane "$lane" &
            running+=("$number" $!)
            while [ "${stage_lanes[$number]:-0}" = "$lane" ]; do number=$((number + 1)); done
        done
        end_of_lanes "${running[@]}"
    done
    summary
}

begin_line() {
    echo
    echo "== stage $(($1 + 1)) of ${#stage_names[@]}: ${stage_names[$1]}"
}

tee_log() { tee "$stages_work/log-$1"; }

# run_lane LANE: the stages of a lane, into their logs. What each printed is shown as a whole when it has ended.
run_lane() {
    local number
    for number in "${!stage_names[@]}"; do
        [ "${stage_lanes[$number]}" = "$1" ] || continue
        run_stage "$number" >"$stages_work/log-$number"
        {
            flock 9
            begin_line "$number"
            cat "$stages_work/log-$number"
        } 9>"$stages_work/printing"
    done
}

# end_of_lanes NUMBER PROCESS…: waits for lanes, each given by its first stage, and counts what they did.
end_of_lanes() {
    local number lane
    while [ $# -gt 0 ]; do
        wait "$2"
        lane=${stage_lanes[$1]}
        for ((number = $1; number < ${#stage_names[@]}; number++)); do
            [ "${stage_lanes[$number]}" != "$lane" ] || account_stage "$number"
        done
        shift 2
    done
}

# run_stage NUMBER: prints what the stage does, and a line about it where it has none.
run_stage() {
    local number=$1 name=${stage_names[$1]} log=$stages_work/raw-$1 status began=$SECONDS
    COMEM_TEST_REASONS=$stages_work/reasons-$number eval "${stage_commands[$number]}" </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    if [ "$status" != 0 ] && ! grep -qE "$failed_lines" "$log"; then
        echo "FAILED: $name (status $status)"
    elif ! grep -qE "$passed_lines|$failed_lines|$skipped_lines" "$log"; then
        echo "ok: $name"
    fi
    echo $((SECONDS - began)) >"$stages_work/seconds-$number"
    rm -f "$log"
}

# account_stage NUMBER: counts the lines of a stage that has ended.
account_stage() {
    local number=$1 name=${stage_names[$1]} log=$stages_work/log-$1
    [ -s "$stages_work/seconds-$number" ] || echo "FAILED: $name (it did not run to its end)" | tee -a "$log"
    grep -E "$passed_lines|$failed_lines|$skipped_lines" "$log" >"$stages_work/tally"
    grep -E "$skipped_lines" "$log" >>"$stages_work/skipped"
    if grep -qE "$failed_lines" "$log"; then
        { echo "stage $((number + 1)), $name:" && failures_of "$number"; } >>"$stages_work/failed"
    fi
    count_stage "$name" "$stages_work/tally" "$(cat "$stages_work/seconds-$number" 2>/dev/null || echo 0)"
}

# count_stage NAME TALLY SECONDS: adds a row to the table of stages, and its counts to the sums.
count_stage() {
    local of_stage=0 here_failed here_skipped
    of_stage=$(wc -l <"$2")
    here_failed=$(grep -cE "$failed_lines" "$2")
    here_skipped=$(grep -cE "$skipped_lines" "$2")
    failed=$((failed + here_failed)) skipped=$((skipped + here_skipped))
    passed=$((passed + of_stage - here_failed - here_skipped))
    printf '%5d s  %4d passed %3d failed %3d skipped  %s\n' "$3" $((of_stage - here_failed - here_skipped)) \
        "$here_failed" \
        "$here_skipped" "$1" >>"$stages_work/table"
}

# failures_of NUMBER: the lines that report failures, and under each the last lines of its reason.
failures_of() {
    local log=$stages_work/log-$1
    if [ -s "$stages_work/reasons-$1" ]; then
        grep -E "$failed_lines" "$log"
        cat "$stages_work/reasons-$1"
        return
    fi
    awk -v most="$reason_lines" '
        /^(FAILED: |not ok )/ {
            print
            for (i = count > most ? count - most : 0; i < count; i++) print "    | " lines[i]
            count = 0; after = 1
            next
        }
        after && /^#/ { print "    | " $0; next }
        /^(ok: |ok [0-9]+ - |SKIP: )/ { count = 0; after = 0; next }
        { after = 0; lines[count++] = $0 }' "$log"
}

summary() {
    echo
    echo "The stages:"
    cat "$stages_work/table"
    if [ "$skipped" != 0 ]; then
        echo
        echo "What was skipped:"
        cat "$stages_work/skipped"
    fi
    if [ "$failed" != 0 ]; then
        echo
        echo "What failed, with the last lines of each:"
        cat "$stages_work/failed"
    fi
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

# failed_rust_tests LOG: for each failed test in the output of `cargo test`, `NAME<tab>TARGET<tab>LINE` for each of its
# last lines. TARGET is what cargo wants to run it again (`-p comem-net --lib`). A test program that dies is one
# failure; so is a build.
failed_rust_tests() {
    awk -v most="$reason_lines" '
        function end_block() {
            if (name != "") add(name)
            name = ""; count = 0
        }
        function add(what) {
            names[++tests] = what; reasons[tests] = ""
            for (i = count > most ? count - most : 0; i < count; i++) reasons[tests] = reasons[tests] "\t" lines[i]
            if (count == 0) reasons[tests] = "\t"
        }
        function tell(target) {
            for (t = 1; t <= tests; t++) {
                n = split(reasons[t], line, "\t")
                for (i = 2; i <= n; i++) print names[t] "\t" target "\t" line[i]
            }
            tests = 0; count = 0
        }
        { gsub(/\t/, "    ") }
        /^successes:$/ { successes = 1 }
        /^(failures:|test result: .*)$/ { successes = 0; end_block(); next }
        successes { next }
        # A target has ended. Cargo says how to run it again.
        /^error: .*to rerun pass `/ {
            target = $0
            sub(/^.*to rerun pass `/, "", target)
            sub(/`.*$/, "", target)
            if (tests == 0) add("the test program ended early")
            tell(target)
            next
        }
        /^error: could not compile/ { add("a build"); tell($0); next }
        /^---- .* stdout ----$/ { end_block(); name = $2; next }
        /^ *Running / { count = 0 }
        !/^$/ { lines[count++] = $0 }' "$1"
}

# report_rust_failures LOG: one line with the names of what failed, and for the summary how to run each again and what
# it said last.
report_rust_failures() {
    local failures names
    failures=$(failed_rust_tests "$1")
    names=$(cut -f 1 <<<"$failures" | uniq | awk 'NR > 1 { printf ", " } { printf "%s", $0 }')
    echo "FAILED: Rust tests: ${names:-see above}"
    if [ -n "${COMEM_TEST_REASONS:-}" ] && [ -n "$failures" ]; then
        awk -F '\t' '
            { test = $1 "\t" $2 }
            test != before { print "  " $1 "   (cargo test " $2 ")" }
            { print "    | " $3; before = test }' <<<"$failures" >"$COMEM_TEST_REASONS"
    fi
}
