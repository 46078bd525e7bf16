# shellcheck shell=bash
# Debian's packages in a directory, by an apt whose state lies there, too: what is installed on the machine and what its apt knows stay as
# they are.

# What a line of sources.list says about Debian's keys.
debian_keys() {
    echo "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
}

# debian_repositories FORMAT: a line each for those of Debian's own repositories that this machine uses, in apt's variables.
debian_repositories() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN)|'"$1" 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian|//p' | sort -u
}

# private_apt DIR ARGS...: apt-get with the repositories of DIR/sources.list. Signatures are checked as usual; the release of a snapshot
# may have expired, which does not matter for what is not installed.
private_apt() {
    local dir=$1
    shift
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
    apt-get -q -o Dir::State="$dir/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$dir/apt/cache" \
        -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o Acquire::Retries=2 \
        -o Acquire::http::Timeout=20 -o APT::Sandbox::User=root "$@"
}

# source_of PACKAGE: name and version of the source package that an installed package was built from, as apt takes them.
source_of() {
    # shellcheck disable=SC2016 # dpkg's own variables
    dpkg-query -W -f '${source:Package}=${source:Version}' "$1"
}

# debian_source SOURCE=VERSION DIR: unpacks it into DIR/tree, unless it is there already. apt checks the sums of what it gets.
debian_source() {
    local source=$1 dir=$2
    [ ! -e "$dir/tree" ] || return 0
    rm -rf "$dir"
    mkdir -p "$dir"
    # shellcheck disable=SC2016 # apt's own variables
    debian_repositories "deb-src $(debian_keys) "'$(REPO_URI) $(RELEASE) $(COMPONENT)' >"$dir/sources.list"
    # A repository that has no sources is no reason to do without the others.
    private_apt "$dir" update || true
    if (cd "$dir" && private_apt "$dir" source --download-only "$source"); then
        dpkg-source -x "$dir"/*.dsc "$dir/unpacked" && mv "$dir/unpacked" "$dir/tree"
    fi
    rm -rf "$dir/apt"
    [ -e "$dir/tree" ]
}
