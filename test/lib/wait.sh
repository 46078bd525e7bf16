# shellcheck shell=bash

# wait_until SECONDS COMMAND...: polls the condition; fails when it is still false after SECONDS.
wait_until() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.05
    done
}
