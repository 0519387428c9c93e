#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The longer rows of t/security.t: clients that choose ten thousand names, and
# uploads that trickle in for long.

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from life import fds, status                # noqa: E402
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403
import trickle                              # noqa: E402

MOST = 10000
# what stands beside files
BESIDE = '.epoch', '.manifest.json', '.tmp'


def test_values():
    """One name more than there may be, ten times."""
    with Upstream() as up, Nginx(
            up, path='', http=WHAT + server(
                'many', 'location / { proxy_pass http://127.0.0.1:%%PORT%%;'
                ' proxy_set_header Host echo; }',
                path='%%DIR%%/capture/$http_x_tenant')
            + 'server { listen 127.0.0.1:%%PORT%%; server_name echo;'
            ' return 200; }') as ng:
        with Client(ng.port) as c:
            for i in range(MOST + 10):
                if i and i % 500 == 0:
                    c.close()
                    c = Client(ng.port)
                got = c.ask(whole(b'{"n":%d}' % i, PATH, f'X-Tenant: t/{i}',
                                  host='many'))
                if got.status != 200:
                    is_(got.status, 200, f'{i} is served')
        at = ng.dir + '/capture'
        wait_for(lambda: len([n for n in os.listdir(at)
                              if not n.endswith(BESIDE)]) >= MOST,
                 f'{MOST} files', 60)
        pid = ng.helper()
        ok(len(fds(pid)) < 1200, 'the helper keeps some of them open',
           len(fds(pid)))
        ok(int(status(pid, 'VmRSS')[0]) < 64 << 10, 'and is not large',
           status(pid, 'VmRSS'))

        # known ones are still written; a reload takes new ones again
        with Client(ng.port) as c:
            c.ask(whole(b'{"n":1}', PATH, 'X-Tenant: t/1', host='many'))
        ng.reload()
        ng.new = wait_for(lambda: ng.helpers() and ng.helpers() != [pid],
                          'a new helper')
        with Client(ng.port) as c:
            c.ask(whole(b'{"n":1}', PATH, 'X-Tenant: new', host='many'))
        ng.wait_records('../capture/new', 1)
        ng.quit()

        names = [n for n in os.listdir(at) if not n.endswith(BESIDE)]
        is_(len(names), MOST + 1, 'files')
        is_([n for n in names if n != 'new' and not n.startswith('t_')], [],
            'with safe names')
        rows = [r.value['payload']['n'] for n in names
                for r in records(f'{at}/{n}')]
        is_(sorted(rows), sorted([*range(MOST), 1, 1]), 'each record once')
        is_(counted(ng, at + '/$http_x_tenant'),
            {'seen': MOST + 12, 'recorded': MOST + 2, 'bad_path': 10},
            'counted')


def test_trickle():
    is_(trickle.run(500, 60000, 15, workers=2),
        {'seen': 500, 'recorded': 500}, 'nor are they lost themselves')
    # each ring holds 17 of them, and the arena some 90
    trickle.run(500, 60000, 15, queue='16m')


for test in (test_values, test_trickle):
    with case(test.__name__):
        test()
