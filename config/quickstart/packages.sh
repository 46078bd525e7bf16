# shellcheck shell=bash
# What has to be installed, from config/packages.txt.

# packages_of GROUP...: the packages of these groups.
packages_of() {
    local group
    for group in "$@"; do
        awk -v group="$group" '$1 == group { print $2 }' "$SRC/config/packages.txt"
    done
}

package_is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

packages_missing() {
    local package
    for package in $(packages_of "$@"); do
        package_is_installed "$package" || echo "$package"
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -o DPkg::Lock::Timeout=600 "$@"
}

install_packages() {
    apt update && apt install -y --no-install-recommends "$@"
}

# need_packages GROUP...: installs what is missing, or says it when it may not.
need_packages() {
    local missing
    command -v dpkg-query >/dev/null ||
        die "this machine has no dpkg; on other systems than Debian build by hand (README.md, From a laptop to a cluster)"
    missing=$(packages_missing "$@" | sort -u | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if ! $INSTALL; then
        warn "not installed: $missing"
        die "install them with: apt-get install $missing"
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        die "packages are missing, and without root or sudo they cannot be installed: $missing"
    fi
    say "  installing: $missing" | fold -s -w 100
    # shellcheck disable=SC2086 # a list
    step "packages" "$LOGS/packages.log" install_packages $missing ||
        die "the packages could not be installed"
}
