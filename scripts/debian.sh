# shellcheck shell=bash
# Sourced by scripts that need packages of a certain Debian: use_debian SUITE WORK, then `apt download ...`.
# They come from the machine's own Debian archive, through lists below WORK; /etc/apt stays as it is.

use_debian() { # SUITE WORK
    local archive keys options="" kind
    DEBIAN=$2
    mkdir -p "$DEBIAN/lists/partial" "$DEBIAN/cache/archives/partial"
    archive=$(debian_archive)
    if [[ -z $archive ]]; then # the lists say whose archive it is, and small images have none
        apt-get -qq -o Dir::State::lists="$DEBIAN/lists" -o APT::Sandbox::User=root update
        archive=$(debian_archive -o Dir::State::lists="$DEBIAN/lists")
    fi
    if [[ -z $archive ]]; then
        echo "error: this machine has no Debian archive among its package sources" >&2
        return 1
    fi
    keys=/usr/share/keyrings/debian-archive-keyring.gpg # newer Debians trust it only where it is named
    [[ ! -e $keys ]] || options="[signed-by=$keys] "
    for kind in deb deb-src; do echo "$kind $options$archive $1 main"; done >"$DEBIAN/sources.list"
    apt update
}
# Debian's own archive, as this machine reaches it.
debian_archive() { # OPTIONS...
    # shellcheck disable=SC2016 # apt's own fields
    apt-get "$@" indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "main" && !found {print $3; found = 1}'
}
apt() {
    command apt-get -qq -o Dir::Etc::sourcelist="$DEBIAN/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$DEBIAN/lists" -o Dir::Cache="$DEBIAN/cache" -o APT::Sandbox::User=root "$@"
}
