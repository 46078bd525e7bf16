# shellcheck shell=bash
# `quickstart run`: the first job, and what it shows.

# netpipe LAYOUT FILE: NetPIPE between two ranks. FILE gets lines "bytes Mbit/s seconds".
netpipe() {
    xrc "$1" NPopenmpi -o "$2" -n 50 -u 4194304
}

sample_objects() {
    held_sample "$1" >"$2"
}

netpipe_us() {
    awk -v size="$2" '$1 == size { printf "%.2f", $3 * 1e6 }' "$1"
}

netpipe_gbs() {
    awk -v size="$2" '$1 == size { printf "%.2f", $2 / 8000 }' "$1"
}

# table_of_speed HERE-FILE TWO-HOSTS-FILE
table_of_speed() {
    local size
    printf '  %10s   %24s   %24s\n' '' '2 ranks on this host' '2 simulated hosts'
    printf '  %10s   %12s %11s   %12s %11s\n' 'bytes' 'latency us' 'GB/s' 'latency us' 'GB/s'
    for size in 1 8 64 256 1024 4096 16384 65536 262144 1048576 4194304; do
        printf '  %10s   %12s %11s   %12s %11s\n' "$size" "$(netpipe_us "$1" "$size")" "$(netpipe_gbs "$1" "$size")" \
            "$(netpipe_us "$2" "$size")" "$(netpipe_gbs "$2" "$size")"
    done
}

# qp_row NAME HOSTS RANKS INI TGT: RC needs a queue pair for every other process.
qp_row() {
    local rc=$(($3 * ($2 * $3 - 1)))
    printf '  %-34s %8s %8s   %10s %12s\n' "$1" "$4" "$5" "$rc" "$((4 * rc))"
}

# per_host SAMPLE WHAT: the number on the busiest host.
per_host() {
    jq "[.hosts[] | $2] | max // 0" "$1"
}

INI='([.processes[].objects.qp_ini] | add // 0)'
TGT='.tgt'

table_of_qps() {
    printf '  %-34s %8s %8s   %10s %12s\n' 'queue pairs on each host' 'XRC INI' 'XRC TGT' 'RC alone' 'openib RC x4'
    qp_row "2 ranks on this host" 1 2 "$(per_host "$1" "$INI")" "$(per_host "$1" "$TGT")"
    qp_row "2 ranks on each of 2 hosts" 2 2 "$(per_host "$2" "$INI")" "$(per_host "$2" "$TGT")"
    qp_row "64 ranks on each of 64 (computed)" 64 64 $((64 * 63 + 64)) $((64 * 63 + 64))
}

# carrier LOG: what a job with a report says of the ports that it used.
carrier() {
    local ports
    if grep -q 'using the software HCA' "$1"; then
        say "btl xrc over software HCAs (this machine has no RDMA device)"
    else
        ports=$(sed -nE 's/^ +([^ ]+) port ([0-9]+) .*/\1:\2/p' "$1" | sort -u | xargs)
        say "btl xrc over ${ports:-a device that the job did not name, see $1}"
    fi
}

run_jobs() {
    local out=$1
    heading "2 ranks on this host"
    step "NetPIPE" "$LOGS/run-netpipe-2.log" netpipe 2 "$out/netpipe-2" &&
        step "data checker, every byte of 0 B to 8 MiB" "$LOGS/run-check-2.log" xrc 2 --mca btl_xrc_report 1 "$MPI_CHECK" &&
        step "queue pairs while it runs" "$LOGS/run-objects-2.log" sample_objects 2 "$out/objects-2" || return 1
    heading "2 ranks on each of 2 simulated hosts"
    step "NetPIPE between the hosts" "$LOGS/run-netpipe-2x1.log" netpipe 2x1 "$out/netpipe-2x1" &&
        step "data checker, every byte of 0 B to 8 MiB" "$LOGS/run-check-2x2.log" xrc 2x2 "$MPI_CHECK" &&
        step "queue pairs while it runs" "$LOGS/run-objects-2x2.log" sample_objects 2x2 "$out/objects-2x2" || return 1
    step "nothing left behind: HCA objects, files, processes" "$LOGS/run-clean.log" sandbox_check_clean
}

report() {
    local out=$1
    heading "What happened"
    say "  carried by     $(carrier "$LOGS/run-check-2.log")"
    say "  data checker   $(grep -h '^mpi_check:' "$LOGS/run-check-2.log" | cut -d ' ' -f 2-)"
    say "                 $(grep -h '^mpi_check:' "$LOGS/run-check-2x2.log" | cut -d ' ' -f 2-)"
    say
    table_of_speed "$out/netpipe-2" "$out/netpipe-2x1"
    say
    table_of_qps "$out/objects-2" "$out/objects-2x2"
    heading "Your own program"
    say "  eval \"\$(./quickstart env)\""
    say "  mpirun -np 4 --mca pml ob1 --mca btl xrc,self ./your_program"
    say "  $(outer_command)mpirun \$(vshim hosts 2x2) --mca pml ob1 --mca btl xrc,self ./your_program    # two simulated hosts"
}

# What an ordinary user puts before mpirun to be allowed to simulate hosts.
outer_command() {
    [ "$(id -u)" -eq 0 ] || printf 'unshare -r --uts '
}

quickstart_run() {
    heading "Setting up"
    need_packages build run
    interruptible run_all
}

run_all() {
    build_main || die "the build failed"
    say "  installed in ${INSTALLED#"$PWD"/}"
    use_installed
    sandbox_enter
    trap sandbox_leave EXIT
    mpi_prepare
    if ! run_jobs "$SANDBOX"; then
        die "the first job failed; logs are in $LOGS"
    fi
    report "$SANDBOX"
}
