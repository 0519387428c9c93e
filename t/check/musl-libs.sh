#!/bin/sh

# What the module and its unit tests link with, built for musl:
#
#     t/check/musl-libs.sh SOURCES PREFIX
#
# SOURCES holds the unpacked source packages of pcre2, jansson, libmd, zlib,
# libzstd and cmocka; PREFIX gets include/ and lib/ with static libraries,
# position independent.
# As these packages tell users without autotools and cmake: files and -D's.

set -eu

sources=$(cd "$1" && pwd)
prefix=$2

mkdir -p "$prefix/include" "$prefix/lib" "$prefix/obj"
prefix=$(cd "$prefix" && pwd)

# library, its objects' flags...; the sources on stdin
archive() {
    name=$1
    shift
    mkdir -p "$prefix/obj/$name"

    (
        cd "$prefix/obj/$name"
        xargs -n 1 -P 2 musl-gcc -O1 -fPIC -I"$prefix/include" "$@" -c
        rm -f "$prefix/lib/lib$name.a"
        ar rcs "$prefix/lib/lib$name.a" ./*.o
    )
}

cd "$sources"/pcre2-*/src
cp pcre2.h.generic "$prefix/include/pcre2.h"
cp config.h.generic config.h
cp pcre2_chartables.c.dist pcre2_chartables.c

for part in auto_possess chartables compile config context convert dfa_match \
            error extuni find_bracket jit_compile maketables match \
            match_data newline ord2utf pattern_info script_run serialize \
            string_utils study substitute substring tables ucd valid_utf \
            xclass
do
    echo "$PWD/pcre2_$part.c"
done | archive pcre2-8 -I"$PWD" -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 \
                       -DPCRE2_STATIC -DSUPPORT_PCRE2_8 -DSUPPORT_UNICODE \
                       -DSUPPORT_JIT

cd "$sources"/jansson-*/src
cp jansson.h ../android/jansson_config.h "$prefix/include/"
: > "$prefix/include/jansson_private_config.h"
ls "$PWD"/*.c | archive jansson -DHAVE_STDINT_H -DHAVE_UNISTD_H \
                                -DHAVE_STRTOLL -DINITIAL_HASHTABLE_ORDER=3

cd "$sources"/libmd-*/src
cp ../include/sha2*.h "$prefix/include/"
: > "$prefix/include/config.h"
echo "$PWD/sha2.c" | archive md -I"$PWD"

cd "$sources"/zlib-*
cp zlib.h zconf.h "$prefix/include/"
ls "$PWD"/*.c | archive z -DHAVE_UNISTD_H -D_LARGEFILE64_SOURCE=1

cd "$sources"/libzstd-*/lib
cp zstd.h "$prefix/include/"
ls "$PWD"/common/*.c "$PWD"/compress/*.c "$PWD"/decompress/*.c \
    | archive zstd -DXXH_NAMESPACE=ZSTD_ -DZSTD_DISABLE_ASM

cd "$sources"/cmocka-*/src
cp ../include/cmocka.h "$prefix/include/"
echo "$PWD/cmocka.c" \
    | archive cmocka -I"$PWD/../include" -DHAVE_SIGNAL_H -DHAVE_STRINGS_H \
                     -DHAVE_INTTYPES_H -DHAVE_UNISTD_H -DHAVE_STRSIGNAL \
                     -DHAVE_CLOCK_GETTIME -DHAVE_CLOCK_REALTIME \
                     -DHAVE_STRUCT_TIMESPEC -DHAVE_GCC_THREAD_LOCAL_STORAGE
