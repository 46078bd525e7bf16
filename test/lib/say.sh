# shellcheck shell=bash
# Words for the person in front of the terminal.

say() {
    printf '%s\n' "$*"
}

heading() {
    printf '\n== %s\n' "$*"
}

warn() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    warn "$@"
    exit 1
}

# Somebody else's output, set off from ours.
quoted() {
    sed 's/^/        | /'
}

# step WHAT LOG COMMAND...: runs the command with its output in LOG, shows what it is and how long it took. When it
# fails, shows the end of the log and returns the command's status; 77 means skipped.
step() {
    local what=$1 log=$2 started=$SECONDS status=0
    shift 2
    mkdir -p "$(dirname "$log")"
    printf '  %-62s ' "$what"
    "$@" >"$log" 2>&1 || status=$?
    case $status in
        0) printf '%4d s\n' $((SECONDS - started)) ;;
        77) printf 'skipped\n' && tail -n 1 "$log" | quoted ;;
        *)
            printf 'FAILED\n'
            tail -n 30 "$log" | quoted
            say "    (whole output: $log)"
            ;;
    esac
    return "$status"
}
