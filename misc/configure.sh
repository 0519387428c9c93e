#!/bin/sh

# Configures an nginx source tree for the module alone, in a directory of ours:
#
#     misc/configure.sh NGINX_SRC NGINX BUILD_DIR [ADDON]
#
# NGINX_SRC  a release, a git tree or what Debian's nginx-dev installs; may be
#            read-only: BUILD_DIR gets links to what is in it
# NGINX      the binary that is to load the module; its paths and switches are
#            taken over, for the default capture path is built in, and without
#            --with-compat a module fits only the same switches.  If it is
#            missing, --with-compat alone is used.
# ADDON      where its config is, if it is not this module
#
# CC_OPT and LD_OPT in the environment are passed on.

set -eu

src=$(cd "$1" && pwd)
nginx=$2
dir=$3
addon=$(cd "${4:-$(dirname "$0")/..}" && pwd)

fail() {
    echo "$0: $*" >&2
    exit 1
}

if [ ! -f "$src/src/core/nginx.h" ]; then
    fail "$src is no nginx source tree (no src/core/nginx.h in it)"
fi

if [ -f "$src/configure" ]; then
    configure=./configure
elif [ -f "$src/auto/configure" ]; then
    configure=auto/configure
else
    fail "$src has neither configure nor auto/configure"
fi

version=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)".*/\1/p' \
              "$src/src/core/nginx.h")

# one switch a line; values may hold spaces, in single quotes
switches() {
    eval "set -- $1"
    for switch; do
        printf '%s\n' "$switch"
    done
}

args=--with-compat

if found=$(command -v "$nginx"); then
    text=$("$found" -V 2>&1)
    theirs=$(echo "$text" | sed -n 's,^nginx version: [^/]*/\([0-9.]*\).*,\1,p')

    if [ "$theirs" != "$version" ]; then
        echo "note: the module is built for nginx $version," \
             "but $found is $theirs and will refuse it" >&2
    fi

    all=$(switches "$(echo "$text" | sed -n 's/^configure arguments: //p')")

    if echo "$all" | grep -q '^--with-compat$'; then
        keep='^--(prefix|.*-path|user|group)=|^--with-(compat|threads)$'
        drop='^$'
    else
        keep='^--'
        drop='^--(add-|builddir|with-(cc|ld)-opt|with-[^=]*=)'
    fi

    args=$(echo "$all" | grep -E -e "$keep" | grep -vE -e "$drop" || :)
fi

mkdir -p "$dir"
rm -rf "$dir"/*

for entry in "$src"/*; do
    case "${entry##*/}" in
        objs|Makefile) ;;
        *) ln -s "$entry" "$dir/" ;;
    esac
done

# one argument a line -> positional parameters
IFS='
'
set -f
set -- $args
unset IFS
set +f

cd "$dir"

"$configure" "$@" --builddir=objs --add-dynamic-module="$addon" \
    --with-cc-opt="${CC_OPT:-}" --with-ld-opt="${LD_OPT:-}" > configure.log \
|| {
    tail -n 20 configure.log >&2
    fail "nginx's configure failed; see $dir/configure.log" \
         "and $dir/objs/autoconf.err"
}

echo "configured for nginx $version ($src)"
