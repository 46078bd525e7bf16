# shellcheck shell=bash
# `quickstart bench`: what btl xrc costs beside other transports, in one run, in turns.

. "$SRC/test/lib/programs.sh"

# What is compared: all between ranks of this host. ibv_xrc is perftest's ib_send_lat, verbs without MPI, over XRC.
BENCH_TRANSPORTS="xrc openib vader tcp"

bench_has() {
    case $1 in
        openib | vader | tcp) ompi_info --parsable 2>/dev/null | grep -q "^mca:btl:$1:version" ;;
        *) true ;;
    esac
}

# What carries one-sided communication: osc/rdma does not work over tcp, where Open MPI 4.1 has osc/pt2pt and later ones nothing.
bench_osc() {
    case $1 in
        tcp) ! ompi_info --parsable 2>/dev/null | grep -q "^mca:osc:pt2pt:version" || echo pt2pt ;;
        *) echo rdma ;;
    esac
}

# bench_mpi TRANSPORT RANKS ARGS...: mpi_bench over one transport.
# shellcheck disable=SC2034 # mpi uses MPI_PREFIX
bench_mpi() {
    local transport=$1 osc options=() MPI_PREFIX=()
    osc=$(bench_osc "$transport")
    case $transport in
        openib)
            MPI_PREFIX=(env "LD_PRELOAD=$INSTALLED/lib/libverbs_shim.so")
            options=(--mca btl_openib_allow_ib 1 --mca btl_openib_warn_no_device_params_found 0)
            ;;
        tcp) options=(--mca btl_tcp_if_include lo) ;;
    esac
    mpi "$2" --mca pml ob1 --mca btl "$transport,self" --mca osc "${osc:-rdma}" --mca osc_rdma_btls "$transport" "${options[@]}" \
        "${XRC_BUILD:-$BUILD/main}/test/perf/mpi_bench" "${@:3}"
}

# bench_sample TRANSPORT RANKS ARGS...: lines "TRANSPORT MEASURE SIZE VALUE" on stdout; why not, on stderr.
bench_sample() {
    local log=$SANDBOX/sample
    if bench_mpi "$@" >"$log" 2>&1; then
        grep -E '^(latency|bandwidth|bidirectional|rate|put|fetch_add|resident) [0-9]+ [0-9.e+]+$' "$log" | sed "s/^/$1 /"
    else
        say "$1 $3 with $2 ranks failed:" >&2
        tail -n 5 "$log" >&2
    fi
}

# Half a round trip of ib_send_lat over XRC; both ends on this host.
bench_raw() (
    cd "$SANDBOX" || exit
    for size in 8 4096 65536 1048576; do
        program=(ib_send_lat -c XRC -s "$size" -n "$1")
        start_server "${program[@]}"
        if start_client "${program[@]}" >raw 2>&1; then
            awk -v size="$size" '$1 == size && NF >= 6 { print "ibv_xrc latency", size, $5 }' raw
        else
            say "${program[*]} failed:" >&2
            tail -n 5 raw >&2
        fi
        wait "$server" || true
    done
    remove_domain_files
)

# bench_round SCALE: one sample of everything.
bench_round() {
    local transport
    for transport in $BENCH_TRANSPORTS; do
        if bench_has "$transport"; then
            bench_sample "$transport" 2 messages "$1"
            bench_sample "$transport" 4 rate "$1"
            bench_sample "$transport" 8 rate "$1"
            [ -z "$(bench_osc "$transport")" ] || bench_sample "$transport" 2 onesided "$1"
        fi
    done
    bench_raw $((1000 / $1 > 10 ? 1000 / $1 : 10))
}

# bench_footprint LAYOUT: what a layout of ranks holds while each is connected with each.
bench_footprint() {
    local objects ranks=$((${1%x*} * ${1#*x})) kib
    objects=$(held_sample "$1")
    say "footprint ini $ranks $(jq '[.hosts[] | [.processes[].objects.qp_ini // 0] | add] | add' <<<"$objects") $1"
    say "footprint tgt $ranks $(jq '[.hosts[].tgt] | add' <<<"$objects") $1"
    kib=$(xrc "$1" "${XRC_BUILD:-$BUILD/main}/test/perf/mpi_bench" memory 2>&1 | awk '/^resident/ { r = $3 } /^registered/ { p = $3 } END { print r, p }')
    say "footprint resident_kib $ranks ${kib% *} $1"
    say "footprint pinned_kib $ranks ${kib#* } $1"
}

# callgrind_objects FILE: lines "LIBRARY INSTRUCTIONS". From the file itself: callgrind_annotate names no library for what was inlined.
callgrind_objects() {
    awk '
        /^c?ob=/ {
            id = $1
            sub(/^c?ob=/, "", id)
            if (NF > 1) { name = $0; sub(/.*\//, "", name); names[id] = name }
            if (/^ob=/) object = id
        }
        /^calls=/ { called = 1; next }
        /^[-+*0-9]/ { if (!called) sum[object] += $NF; called = 0 }
        END {
            for (o in sum) total[names[o]] += sum[o]
            for (n in total) print n, total[n]
        }' "$1"
}

# bench_instructions NAME N1 N2 COMMAND...: COMMAND with N1 and then with N2 messages; instructions a message, by library.
bench_instructions() {
    local name=$1 n1=$2 n2=$3 n
    shift 3
    for n in "$n1" "$n2"; do
        "${@//@/$n}" >"$SANDBOX/callgrind.$n.log" 2>&1 || { tail -n 5 "$SANDBOX/callgrind.$n.log" >&2; return 1; }
        callgrind_objects "$SANDBOX/callgrind.$n" | sort >"$SANDBOX/callgrind.$n.sum"
    done
    join "$SANDBOX/callgrind.$n1.sum" "$SANDBOX/callgrind.$n2.sum" |
        awk -v name="$name" -v n=$((n2 - n1)) '
            { d = ($3 - $2) / n; t = $1 ~ /^mca_btl_xrc/ ? "btl" : $1 ~ /^libverbs_shim/ ? "hca" : "other"; sum[t] += d }
            END { for (t in sum) printf "instructions %s_%s 8 %.0f -\n", name, t, sum[t] }'
}

# Both ends are in one process: nobody waits, so the number is always the same.
bench_all_instructions() {
    local valgrind=(valgrind --tool=callgrind "--callgrind-out-file=$SANDBOX/callgrind.@")
    bench_instructions verbs 1000 3000 "${XRC_BUILD:-$BUILD/main}/libtool" --mode=execute "${valgrind[@]}" "${XRC_BUILD:-$BUILD/main}/test/perf/hca" @ send
    bench_instructions mpi 1000 3000 timeout 200 mpirun -np 1 --mca pml ob1 --mca btl xrc "${valgrind[@]}" \
        "${XRC_BUILD:-$BUILD/main}/test/perf/mpi_bench" itself @
}

# bench_measure ROUNDS SCALE LAYOUT...: all samples on stdout.
bench_measure() {
    local rounds=$1 scale=$2 round layout
    shift 2
    for ((round = 1; round <= rounds; ++round)); do
        say "  round $round of $rounds" >&2
        bench_round "$scale"
    done
    for layout in "$@"; do
        say "  footprint of ${layout#*x} ranks on each of ${layout%x*} hosts" >&2
        bench_footprint "$layout"
    done
    say "  instructions" >&2
    bench_all_instructions
}

# bench_report DIRECTORY: from DIRECTORY/samples, figures, picture, and a table for a person.
bench_report() {
    /usr/bin/python3 "$SRC/test/perf/report.py" "$1/samples" "$1/bench.json" "$1/bench.svg"
}

quickstart_bench() {
    heading "Setting up"
    need_packages build run bench
    interruptible bench_all
}

bench_all() {
    local out=$BUILD/bench
    build_main || die "the build failed"
    use_installed
    mkdir -p "$out"
    sandbox_enter
    trap sandbox_leave EXIT
    mpi_prepare
    heading "Measuring; nothing else should run now"
    bench_measure 5 1 2x2 4x4 8x4 >"$out/samples"
    sandbox_check_clean
    heading "Medians"
    bench_report "$out"
    say
    say "  figures: ${out#"$PWD"/}/bench.json, picture: ${out#"$PWD"/}/bench.svg"
}
