#!/bin/sh

# Installs Debian packages, only those that are missing:
#
#     misc/deps.sh PACKAGE...
#
# Installing nginx would start it on port 80; nobody asked for that, so
# services are held back meanwhile.

set -eu

missing=

for package; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || :)

    if [ "$status" != installed ]; then
        missing="$missing $package"
    fi
done

if [ -z "$missing" ]; then
    exit 0
fi

if [ "$(id -u)" != 0 ]; then
    echo "missing packages; as root: apt-get install$missing" >&2
    exit 1
fi

echo "installing$missing"

policy=/usr/sbin/policy-rc.d

if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > $policy
    chmod 755 $policy
fi

log=$(mktemp)

if ! {
    apt-get -q update &&
    DEBIAN_FRONTEND=noninteractive \
        apt-get -qy install --no-install-recommends $missing
} > "$log" 2>&1 < /dev/null; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
fi

rm -f "$log"
