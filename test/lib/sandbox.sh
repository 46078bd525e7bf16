# shellcheck shell=bash
# A place of its own for every test: temporary directory, fabric, and a mark by which its processes are known.
# Needs: wait.sh, $VSHIM (the vshim tool; empty in a build without the software HCA).

sandbox_enter() {
    SANDBOX=$(mktemp -d "${SANDBOX_ROOT:-/tmp}/xrc.XXXXXX")
    export XRC_SANDBOX=${SANDBOX##*/}
    mkdir "$SANDBOX/tmp"
    export TMPDIR=$SANDBOX/tmp
    export VERBS_SHIM_FABRIC=/dev/shm/$XRC_SANDBOX
}

# Process ids that carry the mark of this sandbox, whoever their parents are now.
sandbox_processes() {
    local file
    for file in $(env -u XRC_SANDBOX grep -lzsx "XRC_SANDBOX=$XRC_SANDBOX" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        echo "${file%/environ}"
    done
}

sandbox_is_quiet() {
    [ -z "$(sandbox_processes)" ]
}

sandbox_kill() {
    local pid
    for pid in $(sandbox_processes); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# Objects of all types that the software HCA still holds, all hosts together.
sandbox_objects() {
    env -u XRC_SANDBOX "$VSHIM" list --json | jq '[.totals[]] | add // 0'
}

# Files and directories that a test may not leave. Open MPI's own empty session directories do not count.
sandbox_files() {
    find "$SANDBOX/tmp" \( ! -type d -o -name 'btl_xrc*' \) -print
    find "/dev/shm/$XRC_SANDBOX" -print 2>/dev/null || true
}

# Says what was left behind; false if anything was.
sandbox_check_clean() {
    local objects files pid clean=true
    if ! wait_until 10 sandbox_is_quiet; then
        for pid in $(sandbox_processes); do
            say "left behind: process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        done
        sandbox_kill
        clean=false
    fi
    if [ -n "$VSHIM" ]; then
        objects=$(sandbox_objects)
        if [ "$objects" != 0 ]; then
            say "left behind: $objects HCA objects"
            "$VSHIM" list
            clean=false
        fi
    fi
    files=$(sandbox_files)
    if [ -n "$files" ]; then
        say "left behind:" "$files"
        clean=false
    fi
    $clean
}

# A second signal, as from timeout(1) to its group, may not stop it half-way.
sandbox_leave() {
    trap '' HUP INT TERM
    sandbox_kill
    rm -rf "$SANDBOX" "/dev/shm/$XRC_SANDBOX"
}
