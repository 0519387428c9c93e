#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# A clock that is stepped, and limits: of the system, and of what nginx is
# configured for.

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403
from clock import Clock                     # noqa: E402
from ledger import NUMBER                   # noqa: E402
from limit import AS, FSIZE, NOFILE, limited        # noqa: E402
from llmcapture import CONF                 # noqa: E402

MIB = 1 << 20


def lines(s):
    """(name of the file, timestamp, number) of all."""
    for name in os.listdir(s.dir + '/capture'):
        if '.jsonl' in name and not name.endswith('.epoch'):
            with open(f'{s.dir}/capture/{name}', 'rb') as f:
                for line in f:
                    ts = re.match(rb'\{"timestamp":(\d+),', line)
                    yield name, int(ts[1]), int(NUMBER.search(line)[1])


# the clock

SLACK = 2               # s; the time of a worker is that of its last event


@row('clock: stepped', '60 s ahead and back, 60 s behind, and over a restart',
     prepare=Clock)
def stepped(s):
    for seconds in (60, 0, -60):
        s.clock.set(seconds)
        s.load.more(100)
    s.load.stop()
    s.quit()
    s.clock.set(60)
    s.start()
    s.helper()
    s.start_load().stop()
    s.wait_drained()
    check_times(s)


def check_times(s):
    """One zero of the timestamps agrees with when each was sent, answered."""
    low, high = 0, float('inf')
    for _, ts, n in lines(s):
        sent, answered = s.ledger.times[n]
        low = max(low, sent - ts / 1000)
        high = min(high, answered - ts / 1000)
    ok(low - high < SLACK, 'timestamps as far apart as the requests were',
       f'{low - high:.3f} s off')


# the queue, and the workers

LARGEST = 300 * 1024


def least_queue(s):
    """The least size that nginx -t takes; a byte less it does not."""
    def test(size):
        return s.test(http=f'{CAPTURE_PATH} llm_capture_max_request_bytes '
                      f'{LARGEST}; llm_capture_max_queue_bytes {size};')
    least = int(re.search(r'at least (\d+)', test(1)[1])[1])
    is_((test(least - 1)[0], test(least)[0]), (1, 0),
        f'a queue of {least} bytes is the least')
    os.unlink(s.error_file)             # what was refused


@row('queue: one record', 'of the largest size in each ring, and the helper '
     'stopped meanwhile', prepare=least_queue, length=LARGEST,
     drops=('queue_full',))
def one_record(s):
    pid = s.freeze()
    s.ledger.wait_verdict('queue_full', 20)
    s.thaw(pid)
    s.ledger.wait_verdict('queued', 20)


@row('workers: 256', 'each with a port of its own', workers=256,
     listen='reuseport', conf=CONF.replace('512', '32'), load=dict(clients=8),
     allow=KILLED)
def many_workers(s):
    s.load.more(1000)
    pid = s.helper()
    s.signal('KILL', pid)
    s.new_helper(pid)
    s.load.more(100)


# limits of the system

def just_enough_memory(s):
    """As much as it was seen to take; much less ends in words."""
    s.start()
    s.helper()
    peak = max(int(status(pid, 'VmPeak')[0]) for pid in s.family()) * 1024
    s.quit()
    for part in (0.02, 0.25, 0.5, 0.9):
        for args in ((), ('-t',)):
            done = subprocess.run(
                s.command(*args), stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                **limited(AS, int(peak * part)))
            ok(done.returncode in (1, 127)
               and re.search('[Mm]emory|map segment', done.stdout),
               f'{part:.0%} of the memory, {args or "start"}: it says so',
               f'code {done.returncode}: {done.stdout}')
    os.unlink(s.error_file)
    s.spawn.update(limited(AS, peak + 8 * MIB))


@row('limit: RLIMIT_AS', 'as much memory as a start takes',
     prepare=just_enough_memory)
def little_memory(s):
    s.load.more(300)


BY_HEADER = CAPTURE_PATH.replace('$llm_capture_endpoint', '$http_x_file')


@row('limit: RLIMIT_NOFILE', '64 descriptors for 200 files',
     spawn=limited(NOFILE, 64), path=BY_HEADER,
     load=dict(headers=lambda n: {'X-File': f'f{n % 200}'}))
def few_descriptors(s):
    s.load.more(400)
    s.load.stop()
    s.wait_drained()
    check_files(s, lambda n: f'requests.f{n % 200}.jsonl', 200)


@row('limit: RLIMIT_NOFILE, and reloads', '64 descriptors, a new file for '
     'each request, the zone resized over an upload, and back', workers=1,
     spawn=limited(NOFILE, 64), path=BY_HEADER,
     load=dict(headers=lambda n: {'X-File': f'f{n}'}, pause=0.02))
def few_descriptors_resized(s):
    http = s.words['HTTP']
    held, old = s.hold(), s.workers()
    for more in ('llm_capture_max_queue_bytes 300m;', ''):
        s.load.more(100)
        pid = s.helper()
        s.reload(http=http + more)
        s.new_helper(pid)
    s.load.more(100)
    s.let_go(held)
    s.load.stop()
    s.wait_drained()
    for worker in old:
        wait_gone(worker)
    s.old_zones_over()
    s.reload()


@row('limit: RLIMIT_FSIZE', 'a file that ends at 1.5 MB, and is rotated',
     spawn=limited(FSIZE, 1500000), drops=('failed',))
def short_files(s):
    path, family = s.path('completions'), set(s.family())
    wait_for(lambda: 'cannot write (27' in s.log(), 'a full file', 60)
    s.load.more(20)
    os.rename(path, path + '.1')
    s.reopen()
    wait_for(lambda: os.path.exists(path), 'a new file', 60)
    s.load.more(20)
    is_(family - set(s.family()), set(), 'no process ended')


# of the configuration

def check_files(s, name_of, n):
    """Each line is where it belongs, and there are n files."""
    wrong, names = [], set()
    for name, _, number in lines(s):
        names.add(name)
        if name != name_of(number):
            wrong.append((name, number))
    is_((wrong[:5], len(names)), ([], n), f'each in its own of {n} files')


PLACES = 1000


def places(s):
    """Settings of their own: every third takes less, each tenth samples."""
    text = ''
    for i in range(PLACES):
        own = 'llm_capture on; llm_capture_endpoint_pattern completions$;' \
            f'llm_capture_path %%DIR%%/capture/p{i}.jsonl;'
        if i % 3 == 0:
            own += f'llm_capture_max_request_bytes {20000 + i};'
        if i % 10 == 0:
            own += f'llm_capture_sample_rate 0.{i % 7};'
        text += f'location /p{i}/ {{ proxy_pass http://llm; ' \
            f'{s.place(own)} }}\n'
    s.configure(server=text)


@row('locations: 1000', 'each with a path and settings of its own',
     prepare=places, stays=True, drops=('too_large', 'sampled_out'),
     load=dict(path=lambda n: f'/p{n % PLACES}/v1/completions'))
def many_locations(s):
    s.load.more(PLACES)
    s.load.stop()
    s.wait_drained()
    names = {n % PLACES for _, _, n in lines(s)}
    check_files(s, lambda n: f'p{n % PLACES}.jsonl', len(names))
    ok(len(names) > PLACES / 2, 'most places recorded', len(names))


def values(s, n, files):
    s.load.more(n, 300)
    s.load.stop()
    wait_for(lambda: sum(name.endswith('.jsonl') for name in
                         os.listdir(s.dir + '/capture')) >= files,
             'the files', 60, 0.05)
    check_files(s, lambda i: f'requests.f{i % n}.jsonl', files)


# small ones: to make files takes longer than to send, the queue has to hold all

def value_of(n):
    return dict(headers=lambda i: {'X-File': f'f{i % n}'}, pause=0)


@row('paths: 2000 values', 'of a header, a file each',
     path=BY_HEADER, stays=True, length=200, load=value_of(2000))
def many_paths(s):
    values(s, 2000, 2000)


@row('paths: 10100 values', 'of a header; the last 100 have no file',
     long=True, path=BY_HEADER, stays=True, length=200,
     load=value_of(10100), drops=('bad_path',))
def too_many_paths(s):
    values(s, 10100, 10000)


run()
