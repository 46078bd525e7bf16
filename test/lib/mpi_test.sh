# shellcheck shell=bash
# For the scripts of test/mpi: source it, call test_case for each test, end with test_done.
#
# XRC_PREFIX  where the tree is installed (default: build/install)
# XRC_BUILD   where it was built (default: build/main)
# XRC_LONG    not empty: the long runs as well

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SRC=$(dirname "$(dirname "$here")")
BUILD=$SRC/build
INSTALLED=${XRC_PREFIX:-$BUILD/install}
XRC_BUILD=${XRC_BUILD:-$BUILD/main}
. "$here/say.sh"
. "$here/wait.sh"
. "$here/results.sh"
. "$here/sandbox.sh"
. "$here/mpi.sh"
. "$SRC/config/quickstart/build.sh"
eval "$(print_env)"
export VSHIM=$INSTALLED/bin/vshim
export MPI_CHECK=$XRC_BUILD/test/mpi/mpi_check
test_failures=0

# skip WHY: from inside a test.
skip() {
    say "$*"
    exit 77
}

# fail WHY: from inside a test.
fail() {
    say "$*"
    exit 1
}

test_body() {
    set -e
    sandbox_enter
    trap sandbox_leave EXIT
    cd "$SANDBOX"
    mpi_prepare
    "$@"
    sandbox_check_clean
}

# test_case NAME COMMAND...: COMMAND in a sandbox and with errexit; nothing may be left behind. One line if it passes.
test_case() {
    local name=$1 started=$SECONDS status=0 log fd outcome
    shift
    # Without a name it is not left behind, whatever ends this script.
    log=$(mktemp)
    exec {fd}<>"$log"
    rm "$log"
    log=/proc/$BASHPID/fd/$fd
    # In the background, since bash ignores errexit in anything whose status is looked at.
    test_body "$@" </dev/null >"$log" 2>&1 &
    wait $! || status=$?
    case $status in
        0) outcome=pass ;;
        77) outcome=skip ;;
        *) outcome=fail ;;
    esac
    printf '  %-4s  %-80s %4d s\n' "$outcome" "$name" $((SECONDS - started))
    case $outcome in
        skip) sed 's/^/        /' "$log" ;;
        fail)
            tail -n "${XRC_LINES:-40}" "$log" | quoted
            failed_because "$(basename "$0"): $name" <"$log"
            test_failures=$((test_failures + 1))
            ;;
    esac
    result "$outcome" "$(basename "$0"): $name"
    exec {fd}>&-
}

figures=/dev/null

# measured_case NAME COMMAND...: the same, and what COMMAND adds to the file $figures is shown.
measured_case() {
    figures=$(mktemp)
    test_case "$@"
    sed 's/^/          /' "$figures"
    rm -f "$figures"
    figures=/dev/null
}

test_done() {
    [ "$test_failures" -eq 0 ]
}

# The layouts that every program runs on.
layouts() {
    echo 4 2x2
    [ -z "${XRC_LONG:-}" ] || echo 4x4
}

# Two hosts with one rank each, and two ranks on one host: for programs of two ranks.
pair_layouts() {
    echo 2 2x1
}

job_log=job.log

# Debian's mpirun 4.1.4 now and then loses a rank's help message, and admits it.
mpirun_lost_a_message() {
    grep -q 'ORTE_ERROR_LOG.*show_help' "$job_log"
}

# until_said [-F] [-n TIMES] PATTERN COMMAND...: COMMAND leaves in $job_log what a job printed. Lines of it must match, one at least, or
# exactly so many; with -F, PATTERN is the text itself. Once more when there are too few because mpirun has lost some.
until_said() {
    local kind=-E least=1 most=1000000 pattern said try
    if [ "$1" = -F ]; then
        kind=-F
        shift
    fi
    if [ "$1" = -n ]; then
        least=$2 most=$2
        shift 2
    fi
    pattern=$1
    shift
    for try in $(seq 20); do
        "$@"
        said=$(grep -c $kind -- "$pattern" "$job_log") || true
        if [ "$said" -ge "$least" ] || ! mpirun_lost_a_message; then break; fi
        say "message lost by mpirun, try $try"
    done
    if [ "$said" -lt "$least" ] || [ "$said" -gt "$most" ]; then
        cat "$job_log"
        fail "said $said times: $pattern"
    fi
}
