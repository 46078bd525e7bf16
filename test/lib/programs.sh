# shellcheck shell=bash
# Programs of others, preloaded with the software HCA. Needs mpi_test.sh.

as_user=() # words in front of every program: another user
shim_lib=$INSTALLED/lib/libverbs_shim.so

# on_shim COMMAND...: with the HCA preloaded and a watchdog.
on_shim() {
    timeout -k 5 "${PROGRAM_TIMEOUT:-60}" "${as_user[@]}" env LD_PRELOAD="$shim_lib" "$@"
}

# unprivileged DIR: from here on as nobody in particular, with a copy of the library in DIR, which anyone may enter: the tree may lie
# where only its owner can go.
unprivileged() {
    local public_dir=$1
    as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chmod 755 "$public_dir"
    cp "$shim_lib" "$public_dir"
    shim_lib=$public_dir/${shim_lib##*/}
}

# needs_locked_memory KIB COMMAND...: a test of programs that register so much. The HCA charges it as the kernel does, and an ordinary
# user may often lock no more than 8 MiB.
needs_locked_memory() {
    local limit
    limit=$(ulimit -H -l)
    if [ "$(id -u)" -ne 0 ] && [ "$limit" != unlimited ] && [ "$limit" -lt "$1" ]; then
        skip "needs $1 KiB of locked memory, and ulimit -l is $limit"
    fi
    [ "$(id -u)" -eq 0 ] || ulimit -S -l "$limit"
    "${@:2}"
}

# ---- a server and its clients ----

port=$((20000 + $$ % 10000)) # below those that the kernel gives out

listening() {
    local hex
    hex=$(printf ':%04X' "$port")
    awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6
}

# Is the server waiting for clients? One that has ended never will be.
server_ready() {
    listening || ! kill -0 "$server" 2>/dev/null
}

# The XRC modes of perftest and the pingpongs leave files behind, of fixed names, which another user's next run may not open.
remove_domain_files() {
    rm -f /tmp/xrc_domain /tmp/xrc_domain_client /tmp/xrc_domain_server
}

# start_server COMMAND...: on the host $server_host; returns when it waits for clients. Its pid is in $server.
start_server() {
    remove_domain_files
    VERBS_SHIM_HOST=${server_host:-} on_shim "$@" -p "$port" >server.log 2>&1 &
    server=$!
    wait_until 20 server_ready || true
}

start_client() {
    VERBS_SHIM_HOST=${client_host:-} on_shim "$@" -p "$port" localhost
}

# talk CLIENTS SERVER-ARGS... -- COMMAND...: COMMAND as server, then as CLIENTS clients of it; all must succeed.
talk() {
    local clients=$1 i pids=() extra=() status=0
    shift
    while [ "$1" != -- ]; do
        extra+=("$1")
        shift
    done
    shift
    start_server "$@" "${extra[@]}"
    for ((i = 1; i <= clients; i++)); do
        start_client "$@" >"client$i.log" 2>&1 &
        pids+=($!)
    done
    for i in "${pids[@]}" "$server"; do
        wait "$i" || status=$?
    done
    remove_domain_files
    [ "$status" -eq 0 ] || { tail -n 15 server.log client*.log; fail "ended with status $status"; }
}
