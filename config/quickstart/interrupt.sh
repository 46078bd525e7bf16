# shellcheck shell=bash
# A signal ends quickstart at once, and with it all that it has started: what runs beside the rest as well, and jobs, which timeout(1) puts
# into process groups of their own, where Ctrl-C does not reach them.

# tree_of PID: this process and all that come from it.
tree_of() {
    ps -e -o pid= -o ppid= | awk -v root="$1" '
        { children[$2] = children[$2] " " $1; there[$1] = 1 }
        function show(pid, n, i, list) {
            print pid
            n = split(children[pid], list, " ")
            for (i = 1; i <= n; i++) show(list[i])
        }
        END { if (root in there) show(root) }'
}

# are_gone PID...: zombies are gone as well.
are_gone() {
    ! ps -o stat= -p "$(IFS=,; echo "$*")" | grep -qv '^Z'
}

# end_tree PID: tests get some time to clear up after themselves.
end_tree() {
    local pids
    mapfile -t pids < <(tree_of "$1")
    [ "${#pids[@]}" -gt 0 ] || return 0
    kill -TERM "${pids[@]}" 2>/dev/null || true
    wait_until 20 are_gone "${pids[@]}" || kill -KILL "${pids[@]}" 2>/dev/null || true
}

# interrupted SIGNAL PID
interrupted() {
    trap '' INT TERM HUP
    warn "ended by SIG$1"
    end_tree "$2"
    exit $((128 + $(kill -l "$1")))
}

# interruptible COMMAND...: in the background, so that a signal does not wait for whatever is going on. It cannot read the terminal.
interruptible() {
    local pid signal status=0
    set -m
    {
        set +m
        "$@"
    } </dev/null &
    pid=$!
    set +m
    for signal in INT TERM HUP; do
        # shellcheck disable=SC2064 # this process
        trap "interrupted $signal $pid" "$signal"
    done
    wait "$pid" || status=$?
    trap - INT TERM HUP
    return "$status"
}
