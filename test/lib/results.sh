# shellcheck shell=bash
# One line a result in $XRC_RESULTS: pass|fail|skip, a tab, the test's name. Beside it, in $XRC_RESULTS.why, what each failure said: the
# summary shows it again, for whoever only sees the end of a long log.

results_begin() {
    export XRC_RESULTS=$1
    mkdir -p "$(dirname "$XRC_RESULTS")"
    : >"$XRC_RESULTS"
    : >"$XRC_RESULTS.why"
}

result() {
    printf '%s\t%s\n' "$1" "$2" >>"${XRC_RESULTS:-/dev/null}"
}

# failed_because NAME <TEXT: the lines of TEXT that tell why, or its last ones.
failed_because() {
    local text why
    [ -n "${XRC_RESULTS:-}" ] || return 0
    text=$(tail -n 3000)
    why=$(grep -E -A 6 ': Failure$|[Ee]rror:|ERROR:|WARNING: ThreadSanitizer|still running|left behind|FAILED with|^FAIL' <<<"$text" | head -n 40) || true
    { say "$1" && quoted <<<"${why:-$(tail -n 30 <<<"$text")}"; } >>"$XRC_RESULTS.why"
}

# result_of NAME COMMAND...: the command is one test. Status 77 means skipped, as with automake.
result_of() {
    local name=$1 status=0
    shift
    "$@" || status=$?
    case $status in
        0) result pass "$name" ;;
        77) result skip "$name" ;;
        *) result fail "$name" ;;
    esac
}

# results_of_gtest PREFIX JSON: every googletest case is one test. A program that left no report is one failure.
results_of_gtest() {
    local prefix=$1 json=$2 rows outcome name why
    if rows=$(jq -r '.testsuites[] | .name as $suite | .testsuite[] |
            [if (.failures // []) != [] then "fail" elif .result == "SKIPPED" then "skip"
             elif .result == "COMPLETED" then "pass" else "fail" end, $suite + "." + .name,
             ([.failures // [] | .[].failure] | join("\n"))] | @tsv' "$json" 2>/dev/null); then
        while IFS=$'\t' read -r outcome name why; do
            [ -z "$outcome" ] || result "$outcome" "$prefix: $name"
            [ "$outcome" != fail ] || printf '%b\n' "$why" | failed_because "$prefix: $name"
        done <<<"$rows"
    else
        result fail "$prefix: no report"
    fi
}

results_count() {
    local n
    n=$(grep -c "^$1	" "$XRC_RESULTS") || true
    echo "$n"
}

# Prints the failures and skips, then the line that counts. False when anything failed or nothing ran.
results_summary() {
    local failed passed
    cat "$XRC_RESULTS.why"
    passed=$(results_count pass)
    failed=$(results_count fail)
    awk -F '\t' '$1 == "skip" { print "  skipped: " $2 } $1 == "fail" { print "  FAILED:  " $2 }' "$XRC_RESULTS"
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$(results_count skip)"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
