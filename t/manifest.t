#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The manifest beside each file, and files that become segments: what they say
# is so, whoever dies, and no request is in two segments or in none.

import glob
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED, Life                             # noqa: E402
from llmcapture import *                                    # noqa: E402,F403
from manifests import (content, manifest, manifest_of, read,  # noqa: E402
                       segments, wrong)
from status import STATUS, status                           # noqa: E402

SMALL = 'llm_capture on; llm_capture_rotate size=4k;'
PACKED = 'llm_capture on; llm_capture_rotate size=4k compress=gzip;'


def numbers(paths):
    found = []
    for path in paths:
        for line in content(path).splitlines():
            found.append(json.loads(line)['payload']['n'])
    return found


def all_files(ng):
    live = ng.path('completions')
    return segments(live) + ([live] if os.path.exists(live) else [])


def write(ng, n):
    """In batches that are small, and until each has been dealt with."""
    for _ in range(0, n, 20):
        ng.push(20)
        wait_for(lambda: status(ng)['total']['requests']['pending'] == 0,
                 'all to be written or counted')


with case('the live one'), Life(
        location='llm_capture on; llm_capture_label "v2 canary";',
        allow=KILLED) as ng:
    ng.push(20)
    request(ng.port, '/v1/completions', b'{"model":"m","prompt":')
    live = ng.path('completions')
    got = wait_for(lambda: (manifest(live) or {}).get('seen') == 21
                   and manifest(live), 'the manifest')
    is_(wrong(live), [], 'says what is so')
    is_((got['sealed'], got['sha256'], got['label'], got['format']),
        (False, None, 'v2 canary', 'mooncake_payload'), 'of the live file')
    is_(got['reasons'], {'invalid_json': 1}, 'and why one is not there')
    is_((got['endpoints'], got['models']), (['completions'], ['m']),
        'who was asked for what')
    is_(os.stat(manifest_of(live)).st_mode & 0o777, 0o600, 'private')
    ok(abs(got['t0'] - time.time() * 1000) < 60000, 't0 is a time')
    ng.signal('KILL', ng.helper())
    ng.new_helper(0)
    ng.push(5)
    wait_for(lambda: manifest(live)['recorded'] == 25, 'a successor')
    is_(wrong(live), [], 'after a kill')
    ng.reload()
    ng.push(5)
    wait_for(lambda: manifest(live)['recorded'] == 30, 'a reload')
    is_(wrong(live), [], 'after a reload')
    ng.quit()
    got = manifest(live)
    is_(wrong(live), [], 'at the end')
    is_((got['sealed'], got['pending'], len(got['sha256'])), (True, 0, 64),
        'it is sealed')
    ng.start()
    ng.push(5)
    wait_for(lambda: manifest(live)['recorded'] == 35, 'another nginx')
    got = manifest(live)
    is_(wrong(live), [], 'after a restart')
    is_((got['sealed'], len(got['writers']), got['reasons']),
        (False, 2, {'invalid_json': 1}), 'it goes on')


with case('segments by size'), Life(location=SMALL, server=STATUS) as ng:
    write(ng, 300)
    is_(sorted(numbers(all_files(ng))), list(range(1, 301)), 'all rows')
    live = ng.path('completions')
    sealed = segments(live)
    ok(len(sealed) > 2, 'some', len(sealed))
    for path in sealed:
        read(path)
        is_(wrong(path), [], 'each says what is so')
        ok(manifest(path)['sealed'], 'sealed')
    ng.quit()
    is_(sum(manifest(p)['recorded'] for p in all_files(ng)), 300,
        'recorded in one each')


with case('segments and kills'), Life(location=SMALL, allow=KILLED) as ng:
    for _ in range(6):
        pid = ng.backlog(60)
        ng.signal('CONT', pid)
        ng.signal('KILL', pid)
        ng.new_helper(pid)
    ng.quit()
    files = all_files(ng)
    is_(sorted(numbers(files)), list(range(1, ng.sent + 1)), 'each once')
    is_([(p, wrong(p)) for p in files if wrong(p)
         and manifest(p)['sha256']], [], 'all say what is so')
    is_(sum(manifest(p)['recorded'] for p in files), ng.sent,
        'and nothing is counted twice')


for how, end in (('gzip', '.gz'), ('zstd', '.zst')):
    with case(f'compressed: {how}'), Life(
            location='llm_capture on;'
            f'llm_capture_rotate size=4k keep=3 compress={how};',
            server=STATUS) as ng:
        write(ng, 300)
        live = ng.path('completions')
        wait_for(lambda: len(segments(live)) == 3
                 and all(p.endswith(end) for p in segments(live))
                 and not glob.glob(live[:-6] + '*.plain'),
                 'the newest three, compressed', 60)
        for path in segments(live):
            read(path)
            is_(wrong(path), [], 'says what is so')
            is_(manifest(path)['compression'], how, 'and how')
        is_(len(glob.glob(live[:-6] + '.*.manifest.json')), 3,
            'nothing is left of the others')


with case('two write to one'), Life(
        location=PACKED, workers=1, allow=KILLED) as a, Life(
        location=PACKED, workers=1, allow=KILLED,
        path=CAPTURE_PATH.replace('%%DIR%%', a.dir)) as b:
    b.sent = 10000
    for n in range(20):
        a.push(15)
        b.push(15)
        if n % 5 == 4:
            killed = (a, b)[n % 2]
            pid = killed.helper()
            killed.signal('KILL', pid)
            killed.new_helper(pid)
    wait_for(lambda: not glob.glob(a.path('completions')[:-6] + '*.plain'),
             'all to be compressed')
    a.quit()
    b.quit()
    files = all_files(a)
    want = [*range(1, 301), *range(10001, 10301)]
    is_(sorted(numbers(files)), want, 'each once')
    is_([(p, wrong(p)) for p in files if wrong(p)], [], 'all say what is so')
    is_(sum(manifest(p)['recorded'] for p in files), 600, 'of both')
    is_([p for p in files if not manifest(p)['sha256']], [], 'and are sealed')
    is_(len(glob.glob(a.path('completions')[:-6] + '*.manifest.json')),
        len(files), 'there are no others')


with case('by time'), Life(
        location='llm_capture on; llm_capture_rotate time=1s;') as ng:
    ng.push(5)
    live = ng.path('completions')
    wait_for(lambda: len(segments(live)) == 1, 'a segment, of its own accord')
    ok(not os.path.exists(live), 'the live one is gone')
    ng.push(5)
    wait_for(lambda: len(segments(live)) == 2, 'another')
    is_(sorted(numbers(segments(live))), list(range(1, 11)), 'all in both')


with case('renamed by others'), Life() as ng:
    ng.push(10)
    live = ng.path('completions')
    wait_for(lambda: manifest(live), 'the manifest')
    os.rename(live, live + '.1')
    ng.push(5)
    ng.wait_records('requests.completions.jsonl.1', 15)
    ng.signal('USR1')
    wait_for(lambda: (manifest(live + '.1') or {}).get('recorded') == 15,
             'its manifest to follow')
    is_(wrong(live + '.1'), [], 'says what is so')
    ok(manifest(live + '.1')['sealed'], 'sealed')
    ng.push(7)
    wait_for(lambda: (manifest(live) or {}).get('recorded') == 7,
             'that of the new one')
    is_(wrong(live), [], 'the new one too')


with case('a budget'), Life(
        http='llm_capture_max_disk 20k; llm_capture_min_free off;',
        server=STATUS) as ng:
    write(ng, 400)
    ng.quit()
    got = ng.counters()
    ok(got['disk_limit'] > 50 and got['recorded'] > 100, 'stops and counts',
       got)
    live = ng.path('completions')
    ok(os.path.getsize(live) <= 20480, 'within it')
    got = manifest(live)
    is_(wrong(live), [], 'the manifest says so')
    is_(sum(g['requests'] for g in got['gaps']), got['reasons']['disk_limit'],
        'and when')


with case('a budget, the oldest go'), Life(
        http='llm_capture_max_disk 20k drop_oldest;', location=SMALL,
        server=STATUS) as ng:
    write(ng, 400)
    ng.quit()
    is_(ng.counters()['recorded'], 400, 'all are recorded')
    files = all_files(ng)
    ok(sum(os.path.getsize(p) for p in files) <= 20480, 'within it')
    have = sorted(numbers(files))
    is_(have, list(range(401 - len(have), 401)), 'the newest are there')
    ok('the oldest segment was removed' in ng.log(), 'it says so')


with case('a floor'), Life(http='llm_capture_min_free 99%;') as ng:
    ng.push(10)
    ng.quit()
    is_(ng.counters()['disk_limit'], 10, 'nothing is written below it')


with case('configuration'), Nginx(start=False, allow=r'\[emerg\]') as ng:
    for text, word in (
            ('llm_capture_rotate keep=3;', 'must have "size=" or "time="'),
            ('llm_capture_rotate size=0;', 'have a size'),
            ('llm_capture_rotate size=1m size=2m;', 'each once'),
            ('llm_capture_rotate time=x;', 'have a time'),
            ('llm_capture_rotate size=1m keep=0;', 'a number from 1'),
            ('llm_capture_rotate size=1m compress=br;', 'compress=gzip'),
            ('llm_capture_label "";', '1 to 128 characters'),
            ('llm_capture_label a; llm_capture_label b;', 'is duplicate')):
        code, said = ng.test(location='llm_capture on;' + text)
        ok(code and word in said, text, said)
    for text, word in (
            ('llm_capture_max_disk x;', 'be a size'),
            ('llm_capture_max_disk 1g keep;', '"stop" or "drop_oldest"'),
            ('llm_capture_min_free 100%;', 'be a size')):
        code, said = ng.test(http=CAPTURE_PATH + text)
        ok(code and word in said, text, said)
    code, said = ng.test(http=CAPTURE_PATH, location='llm_capture on;'
                         ' location /a { llm_capture_rotate size=1m; }')
    ok(code and '"llm_capture_rotate" differs' in said, 'two for one path',
       said)
    code, said = ng.test(
        http=CAPTURE_PATH, location='llm_capture on;'
        ' location /a { llm_capture_path %%DIR%%/capture/x; }'
        ' location /b { llm_capture_path %%DIR%%/capture/x.jsonl; }')
    ok(code and 'would have one manifest' in said, 'two of one stem', said)
