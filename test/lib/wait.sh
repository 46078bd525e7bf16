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

# stand_still PID...: no thread of theirs runs.
stand_still() {
    local pid
    for pid in "$@"; do
        awk '/^State:/ && $2 != "T" { exit 1 }' "/proc/$pid"/task/*/status 2>/dev/null || return 1
    done
}

# stop_processes PID...: until they stand still. The signal alone leaves a thread that is not told yet the time for another step.
stop_processes() {
    kill -STOP "$@"
    wait_until 60 stand_still "$@"
}
