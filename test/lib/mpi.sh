# shellcheck shell=bash
# mpirun over btl xrc, on this host or on simulated ones. Needs print_env's variables (quickstart env) in force.

# What makes a job of more ranks than cores bearable, and keeps it off real networks. From the environment, so that the
# command lines are those of the README.
mpi_prepare() {
    export OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    export OMPI_MCA_oob_tcp_if_include=lo
    export OMPI_MCA_orte_tmpdir_base="$TMPDIR"
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
}

# mpi LAYOUT ARGS...: mpirun with LAYOUT ranks on this host ("4") or on simulated hosts ("2x2": hosts x ranks each), and
# whatever else ARGS say. Ends with status 124 after $MPI_TIMEOUT seconds. The array MPI_PREFIX, if set, stands before mpirun.
mpi() {
    local layout=$1 where=() outer=()
    [ -n "${MPI_PREFIX+set}" ] || MPI_PREFIX=()
    shift
    case $layout in
        *x*) read -ra where <<<"$("$VSHIM" hosts "$layout")" ;;
        *) where=(-np "$layout") ;;
    esac
    if [ "$(id -u)" -ne 0 ] && [ "$layout" != "${layout#*x}" ]; then
        # A UTS namespace a host needs CAP_SYS_ADMIN; all hosts share one user namespace.
        outer=(unshare -r --uts)
    fi
    timeout -k 10 "${MPI_TIMEOUT:-300}" "${outer[@]}" "${MPI_PREFIX[@]}" mpirun "${where[@]}" "$@"
}

# xrc LAYOUT ARGS...: the same, over btl xrc alone.
xrc() {
    local layout=$1
    shift
    mpi "$layout" --mca pml ob1 --mca btl "${XRC_TEST_BTL:-xrc,self}" "$@"
}

# The BTL that carries what stays on a node where it is not xrc.
shared_memory() {
    case $(mpirun --version | head -n 1) in
        *' 4.'*) echo vader ;;
        *) echo sm ;;
    esac
}

# "4 ranks on this host", "2x2 ranks on 2 hosts"
layout_name() {
    case $1 in
        *x1) echo "1 rank on each of ${1%x*} hosts" ;;
        *x*) echo "${1#*x} ranks on each of ${1%x*} hosts" ;;
        1) echo "1 rank on this host" ;;
        *) echo "$1 ranks on this host" ;;
    esac
}

# held_sample LAYOUT [MPI_CHECK OPTIONS...]: what `vshim list --json` says while all pairs of ranks of a job are connected
# and idle. What the checker says is shown when it fails.
held_sample() (
    layout=$1 status=0
    shift
    dir=$(mktemp -d "${SANDBOX:-/tmp}/held.XXXXXX")
    cd "$dir" || exit
    mkfifo hold
    xrc "$layout" "$MPI_CHECK" --parts pairs --hold "$dir/hold" "$@" >held.log 2>&1 &
    job=$!
    # The first redirection waits for the job, and lets it go on when the inner shell ends.
    # shellcheck disable=SC2016 # expanded by the inner shell
    sample=$(timeout "${MPI_TIMEOUT:-300}" bash -c 'exec 3>hold && "$0" list --json' "$VSHIM") || status=1
    wait "$job" || status=1
    [ "$status" -eq 0 ] || cat held.log >&2
    rm -r "$dir"
    [ "$status" -eq 0 ] && echo "$sample"
)
