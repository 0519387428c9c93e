#!/bin/sh

# In an image, after build.sh: the unit tests, and the life of the module in
# a few seconds.

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
/opt/test/bin/pip -q install $(grep -E '^(orjson|h2)==' t/lib/requirements.txt)
PATH=/opt/test/bin:$PATH

make -s unit
export CMOCKA_MESSAGE_OUTPUT=tap
prove --timer t/unit.t t/check/smoke.py
