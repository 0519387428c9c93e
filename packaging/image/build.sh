#!/bin/sh

# In an image: installs what is needed, and builds the module.
#
#     build.sh own|VERSION [SHA256]
#
# own      for the nginx that is in the image; if there is none, for Debian's,
#          which is installed
# VERSION  for that release of nginx, which need not be there
#
# A release comes from packaging/sources/nginx-VERSION.tar.gz, or is fetched.

set -eu
cd "$(dirname "$0")/../.."

version=$1
sha256=${2:-}

fail() {
    echo "$0: $*" >&2
    exit 1
}

# what it is loaded in has nothing but libc
self_contained() {
    needed=$(readelf -d build/ngx_http_llm_capture_module.so \
        | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^libc\.' || :)
    [ ! "$needed" ] || fail "the module needs" $needed
}

if [ "$version" = own ]; then
    version=
    if command -v nginx > /dev/null; then
        version=$(nginx -v 2>&1 | sed 's,.*/\([0-9.]*\).*,\1,')
    fi
fi

if command -v apk > /dev/null; then
    [ "$version" ] || fail 'Alpine: use an image with nginx, or say a version'
    apk add --no-cache gcc make musl-dev linux-headers wget \
        pcre2-dev pcre2-static jansson-dev jansson-static libmd-dev \
        zlib-dev zlib-static zstd-dev zstd-static
elif [ "$version" ]; then
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends \
        gcc libc6-dev make libpcre2-dev libjansson-dev libmd-dev \
        zlib1g-dev libzstd-dev \
        ca-certificates wget
else
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends \
        gcc libc6-dev make libpcre2-dev libjansson-dev libmd-dev \
        zlib1g-dev libzstd-dev \
        nginx nginx-dev
    make
    self_contained
    exit
fi

tarball=packaging/sources/nginx-$version.tar.gz

if [ ! -e "$tarball" ]; then
    tarball=/tmp/nginx-$version.tar.gz
    wget -q -O "$tarball" "https://nginx.org/download/${tarball##*/}"
fi

if [ "$sha256" ]; then
    echo "$sha256  $tarball" | sha256sum -c - \
        || fail "$tarball is not what NGINX_SHA256 says"
fi

mkdir -p build
tar -C build -xzf "$tarball"
make NGINX_SRC="build/nginx-$version"
self_contained
