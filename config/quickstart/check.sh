# shellcheck shell=bash
# `quickstart check`: everything that can be tested here, each result counted.

# check_step NAME LOG COMMAND...: a step that is one test.
check_step() {
    local name=$1 failed
    failed=$(results_count fail)
    result_of "$name" step "$@"
    [ "$(results_count fail)" -eq "$failed" ] || failed_because "$name" <"$2"
}

# The googletest programs that this variant was built with, run by `make check` and counted case by case.
check_gtests() {
    local name=$1 dir=$BUILD/$1 program programs
    programs=$(make -s --no-print-directory -C "$dir/test" list-tests)
    if [ -z "$programs" ]; then
        result fail "$name: no test program was built"
        return 0
    fi
    # A program that cannot be built any more must not pass by its last report.
    find "$dir/test" -name '*.json' -delete
    step "unit, conformance and crash tests ($name)" "$LOGS/$name-check.log" \
        make -C "$dir/test" -k -j "$(nproc)" check VERBOSE=1 || failed_because "$name" <"$LOGS/$name-check.log"
    for program in $programs; do
        results_of_gtest "$name: $program" "$dir/test/$program.json"
    done
}

# False when it could not be built: then there is nothing in it to test.
check_variant() {
    local name=$1
    shift
    if build_variant "$name" all -- "$@"; then
        result pass "build: $name"
    else
        result fail "build: $name"
        return 1
    fi
}

# check_script SCRIPT [WORD...]: a script that writes its own results, with WORDs in front of it.
check_script() {
    local script=$1 before after status=0
    shift
    heading "$(sed -n '2s/^# //p' "$script")"
    before=$(wc -l <"$XRC_RESULTS")
    "$@" timeout -k 10 "$([ -n "${XRC_LONG:-}" ] && echo 14400 || echo 2400)" "$script" || status=$?
    after=$(wc -l <"$XRC_RESULTS")
    # A script that ended without a result, or badly without a failed one, did not do what it is for.
    if [ "$before" -eq "$after" ] ||
        { [ "$status" -ne 0 ] && ! tail -n $((after - before)) "$XRC_RESULTS" | grep -q '^fail'; }; then
        say "  FAILED with status $status before its end"
        result fail "${script##*/}: ended with status $status"
    fi
}

# ---- what runs beside the rest ----

# Niceness of the scripts that only compute or wait for hours to pass: they take what the others leave. Less nice is one whose ranks
# would otherwise come so late that their peers give them up.
declare -A beside_nice=([model/model_test]=19 [crash/fuzz_test]=19)
beside_names=()
beside_pids=()

is_beside() {
    [ -n "${beside_nice[$1]:-}" ]
}

# beside NAME COMMAND...: in the background, with results and a log of its own.
beside() {
    local name=$1
    shift
    say "  beside the others: $name"
    mkdir -p "$LOGS"
    rm -f "$LOGS/$name.status"
    (
        # Its number may serve for another child before anybody waits for it, and then bash has forgotten how it ended.
        trap 'echo "$?" >"$LOGS/$name.status"' EXIT
        results_begin "$XRC_RESULTS.$name"
        "$@"
    ) >"$LOGS/$name.log" 2>&1 &
    beside_names+=("$name")
    beside_pids+=("$!")
}

beside_scripts() {
    local script
    [ -z "${XRC_LONG:-}" ] || beside_nice[mpi/apm_test]=5
    for script in "${!beside_nice[@]}"; do
        beside "${script##*/}" check_script "$SRC/test/$script" nice -n "${beside_nice[$script]}"
    done
}

# Waits for all of them; shows what they printed, and counts their results.
beside_end() {
    local i name file status
    for i in "${!beside_names[@]}"; do
        name=${beside_names[i]}
        wait "${beside_pids[i]}" 2>/dev/null || true
        status=$(cat "$LOGS/$name.status" 2>/dev/null) || status="unknown"
        cat "$LOGS/$name.log"
        for file in "" .why; do
            cat "$XRC_RESULTS.$name$file" >>"$XRC_RESULTS$file"
        done
        if [ "$status" != 0 ]; then
            say "  FAILED with status $status before its end"
            result fail "$name: ended with status $status"
        fi
    done
}

check_scripts() {
    local script
    for script in "$SRC"/test/model/*_test "$SRC"/test/conform/*_test "$SRC"/test/crash/*_test "$SRC"/test/mpi/*_test; do
        if [ -x "$script" ] && ! is_beside "${script#"$SRC/test/"}"; then
            check_script "$script"
        fi
    done
}

# The tarball holds every file that is kept but those about the keeping itself.
tarball_is_whole() {
    local missing
    git -C "$SRC" rev-parse 2>/dev/null || return 0
    missing=$(comm -23 <(git -C "$SRC" ls-files | grep -vE '(^|/)\.(ci/|clang-format$|gitignore$|shellcheckrc$)' | sort) \
        <(tar -tf "$BUILD"/main/openmpi-xrc-*.tar.xz | sed 's,^[^/]*/,,' | sort))
    [ -z "$missing" ] || { say "not in the tarball: $missing"; return 1; }
}

# All is built from the tarball, by the other compiler, but the tests of the whole, which have been built and run three times already.
distcheck() {
    local units
    units=$(make -s -C "$BUILD/main/test" list-tests | tr ' ' '\n' | grep '^unit/' | xargs)
    make -C "$BUILD/main" -j "$(nproc)" distcheck VERBOSE=1 TESTS="$units" check_PROGRAMS="$units" \
        DISTCHECK_CONFIGURE_FLAGS='CC=clang CXX=clang++' &&
        tarball_is_whole
}

# Sanitizers, other compilers, other trees.
other_builds() {
    local release without_shim=$BUILD/without-verbs-shim/installed
    renice -n 5 -p "$BASHPID" >/dev/null
    heading "Sanitizers and other builds"
    if check_variant asan --enable-asan --enable-werror CFLAGS='-O1 -g' "$TEST_CXXFLAGS"; then
        check_gtests asan
    fi
    if check_variant tsan --enable-tsan --enable-werror CFLAGS='-O1 -g' "$TEST_CXXFLAGS"; then
        check_gtests tsan
    fi
    if check_variant without-verbs-shim --without-verbs-shim --enable-werror --prefix="$without_shim"; then
        check_step "make install (without-verbs-shim)" "$LOGS/without-verbs-shim-install.log" make -C "$BUILD/without-verbs-shim" install
        check_script "$SRC/test/mpi/without_shim" env XRC_WITHOUT_SHIM="$without_shim"
    fi
    check_step "builds inside an Open MPI tree" "$LOGS/drop-in.log" "$SRC/test/style/drop_in" "$SRC"
    check_step "make install into Open MPI's directory, and into another" "$LOGS/component-dir.log" "$SRC/test/style/component_dir" "$SRC"
    check_step "make distcheck (clang)" "$LOGS/distcheck.log" distcheck
    for release in trixie sid; do
        check_step "compiles with the Open MPI of Debian $release" "$LOGS/headers-$release.log" \
            "$SRC/test/style/compile_with" "$release" "$BUILD/headers" "$SRC"
    done
}

quickstart_check() {
    heading "Setting up"
    need_packages build run check
    interruptible check_all
}

check_all() {
    local started=$SECONDS
    results_begin "$BUILD/results"
    result_of "build: main (gcc)" build_main
    if [ "$(results_count fail)" -ne 0 ]; then
        results_summary
        return 1
    fi
    use_installed

    beside_scripts
    check_script "$SRC/test/style/run"
    check_script "$SRC/test/style/link_check"
    heading "Tests of the parts"
    check_gtests main
    # Most of the scripts wait more than they compute, and the builds compute more than they wait.
    beside other-builds other_builds
    check_scripts
    beside_end
    heading "Result after $(((SECONDS - started) / 60)) min"
    results_summary
}
