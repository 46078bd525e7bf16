# shellcheck shell=bash
# Out-of-tree builds, one directory a variant: build/main, build/asan, ...

# True when something that make configure and Makefile.in is newer than they are, or one of them is not there.
autogen_is_needed() {
    local makefile
    for makefile in "$SRC"/Makefile.am "$SRC"/*/Makefile.am; do
        [ -e "${makefile%.am}.in" ] || return 0
    done
    [ ! -x "$SRC/configure" ] ||
        [ -n "$(find "$SRC/configure.ac" "$SRC/configure.m4" "$SRC"/config/*.m4 "$SRC"/config/*.in \
            "$SRC"/Makefile.am "$SRC"/*/Makefile.am -newer "$SRC/configure" -print -quit)" ]
}

# What it makes goes first: interrupted, it has not made all of it, and that is seen the next time.
autogen() {
    rm -f "$SRC/configure" "$SRC/Makefile.in" "$SRC"/*/Makefile.in
    "$SRC/autogen.sh" && touch "$SRC/configure"
}

# Directories are looked at too: a file that was removed changes them.
sources_changed_since() {
    [ ! -e "$1" ] ||
        [ -n "$(find "$SRC/btl_xrc" "$SRC/verbs_shim" "$SRC/tools" "$SRC/man" "$SRC/test" "$SRC/config" "$SRC/Makefile.am" \
            "$SRC/configure" \( -path "$SRC/config/m4" -o -path "$SRC/config/aux" \) -prune -o \
            -newer "$1" -print -quit)" ]
}

configure_in() (
    dir=$1
    shift
    mkdir -p "$dir" && cd "$dir" && "$SRC/configure" "$@" && printf '%s\n' "$*" >configured
)

configured_with() {
    [ "$(cat "$1/configured" 2>/dev/null)" = "$2" ] && [ ! "$SRC/configure" -nt "$1/config.status" ]
}

# build_variant NAME TARGET... -- CONFIGURE-OPTION...: configures and makes what changed; nothing when nothing did.
build_variant() {
    local name=$1 dir=$BUILD/$1 targets=()
    shift
    while [ "$1" != -- ]; do
        targets+=("$1")
        shift
    done
    shift
    if autogen_is_needed; then
        step "autogen" "$LOGS/autogen.log" autogen || return 1
    fi
    if ! configured_with "$dir" "$*"; then
        rm -f "$dir/up-to-date"
        step "configure ($name)" "$LOGS/$name-configure.log" configure_in "$dir" "$@" || return 1
    fi
    if sources_changed_since "$dir/up-to-date"; then
        touch "$dir/started"
        step "make ${targets[*]} ($name)" "$LOGS/$name-make.log" make -C "$dir" -j "$(nproc)" "${targets[@]}" || return 1
        mv "$dir/started" "$dir/up-to-date"
    fi
}

# For googletest programs: what they test is optimised, they themselves only have to compile fast.
TEST_CXXFLAGS="CXXFLAGS=-O0 -g1"

# The build that is installed in build/install and that everything else uses.
build_main() {
    build_variant main install -- --prefix="$INSTALLED" --enable-werror CFLAGS='-O2 -g' "$TEST_CXXFLAGS"
}

# Shell lines for the programs of build/install.
print_env() {
    local pmix_libdir
    # shellcheck disable=SC2016 # expanded by whoever evaluates it
    printf 'export PATH=%q:"$PATH"\n' "$INSTALLED/bin"
    printf 'export VERBS_SHIM_LIB=%q\n' "$INSTALLED/lib/libverbs_shim.so"
    printf 'export OMPI_MCA_mca_base_component_path=%q\n' "$INSTALLED/lib/openmpi-xrc:SYSTEM_DEFAULT"
    case $(mpirun --version 2>/dev/null | head -n 1) in
        *' 4.'*) ;;
        *)
            pmix_libdir=$(pkg-config --variable=libdir pmix)
            printf 'export PMIX_MCA_mca_base_component_path=%q\n' "$pmix_libdir/pmix"
            ;;
    esac
    # An ordinary user becomes root, too, by the unshare -r that simulated hosts need.
    say 'export OMPI_ALLOW_RUN_AS_ROOT=1'
    say 'export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
}
