#!/bin/sh

# Moves the segments that llm_capture_rotate made to another place, which can
# be all that rclone knows: S3, GCS, SFTP, a directory.
#
#     rclone.sh /var/log/nginx/llm_capture remote:captures/host-1
#
# To be run again and again as the user of the files, by cron or by a timer.
#
# A segment is taken when its manifest has the digest: then nginx is done with
# it.  Its manifest goes last: where that has come, all of it has.  The live
# file has no time in its name, and stays.

set -eu

dir=$1
remote=$2

utc='[0-9]{8}T[0-9]{6}\.[0-9]{3}Z'

# one at a time
exec 9< "$dir"
flock -n 9 || exit 0

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$dir"

find . -regextype posix-extended -type f \
    -regex ".*\.$utc\.manifest\.json" \
    -exec grep -l '^  "sha256": "' {} + | while read -r manifest
do
    segment=${manifest#./}
    segment=${segment%.manifest.json}

    # being compressed
    [ ! -e "$segment.jsonl.plain" ] || continue

    echo "$segment.manifest.json" >> "$work/manifests"

    for end in outcomes jsonl jsonl.gz jsonl.zst; do
        [ ! -e "$segment.$end" ] || echo "$segment.$end" >> "$work/segments"
    done
done

for list in segments manifests; do
    [ ! -e "$work/$list" ] || rclone move -q --files-from-raw "$work/$list" \
        . "$remote"
done
