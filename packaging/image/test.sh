#!/bin/sh

# In an image, after build.sh: runs tests.
#
#     test.sh t/unit.t t/check/smoke.py

set -eu
cd "$(dirname "$0")/../.."

if command -v apk > /dev/null; then
    # musl has no sanitizers
    apk add --no-cache cmocka-dev perl perl-utils python3 py3-pip
    rm -f t/unit/*_asan.c t/unit/*_tsan.c
else
    DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends \
        libcmocka-dev python3-venv perl
fi

# AIPerf's parser of JSON, and HTTP/2
python3 -m venv /opt/test
index=

for wheel in packaging/sources/*.whl; do
    [ ! -e "$wheel" ] || index='--no-index --find-links packaging/sources'
done

/opt/test/bin/pip -q install $index \
    $(grep -E '^(orjson|h2)==' t/lib/requirements.txt)
PATH=/opt/test/bin:$PATH

case "$*" in
    *unit*) make -s unit ;;
esac

prove --timer "$@"
