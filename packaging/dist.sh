#!/bin/sh

# The source as one file, the same for the same commit:
#
#     packaging/dist.sh VERSION FILE
#
# Out of a git tree what HEAD holds; out of such a file, all but build/.

set -eu

version=$1
file=$2
name=llm-capture-$version

mkdir -p "$(dirname "$file")"

if [ -e .git ]; then
    git archive --format=tar --prefix="$name/" HEAD
else
    tar -c --sort=name --owner=0 --group=0 --numeric-owner \
        --exclude=./build --exclude=__pycache__ \
        --transform="s,^\.,$name," .
fi | gzip -9n > "$file.new"

mv "$file.new" "$file"
echo "$file"
