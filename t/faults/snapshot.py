#
# Copyright (C) the llm-capture authors
#
# What a fault may not leave behind: processes, descriptors, memory.

import os

from life import fds, status
from llmcapture import is_, ok, wait_for


def snapshot(s):
    """Once the clients are gone: descriptors and memory of each kind."""
    family = {'master': [s.master], 'helper': s.helpers(),
              'worker': s.workers()}
    return {
        'processes': {k: len(v) for k, v in family.items()},
        'descriptors': {k: max((len(fds(p)) for p in v), default=0)
                        for k, v in family.items()},
        'shared memory': {k: sorted(shared(p) for p in v)
                          for k, v in family.items()},
        'memory': {k: max((anonymous(p) for p in v), default=0)
                   for k, v in family.items()}}


def shared(pid):
    """How many shared mappings: zones, and the scoreboards of nginx."""
    try:
        with open(f'/proc/{pid}/maps') as f:
            return sum('/dev/zero' in line for line in f)
    except OSError:
        return 0


def anonymous(pid):
    """KiB that belong to the process alone."""
    try:
        return int((status(pid, 'RssAnon') or [0])[0])
    except OSError:
        return 0


COUNTS = 'processes', 'shared memory'
MEMORY_SLACK = 3072                     # KiB: heaps do not shrink

# there memory that was freed is kept, to see who uses it
SANITIZED = bool(os.environ.get('LLM_CAPTURE_SANITIZED'))


def check_memory(before, now, name):
    if not SANITIZED:
        ok(all(now[k] <= v + MEMORY_SLACK for k, v in before.items()), name,
           f'{before}, now {now} KiB')


def check_back(s, name):
    if s.row.stays:
        return
    now = {}

    def same():
        now.update(snapshot(s))
        return (all(now[k] == s.before[k] for k in COUNTS)
                and all(now['descriptors'][k] <= v
                        for k, v in s.before['descriptors'].items()))
    try:
        wait_for(same, 'processes and descriptors as before')
    except TimeoutError:
        pass
    for k in COUNTS:
        is_(now[k], s.before[k], f'{name}: {k} as before')
    ok(same(), f'{name}: descriptors as before',
       f"{s.before['descriptors']}, now {now['descriptors']}")
    check_memory(s.before['memory'], now['memory'],
                 f'{name}: memory as before')
