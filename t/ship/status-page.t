#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The page of llm_capture_status in a real browser, under traffic; the
# screenshot becomes docs/status.png.  And the metrics, by promtool.

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))
from llmcapture import *                                    # noqa: E402,F403
from llmcapture import TOP                                  # noqa: E402
from outcomes import Outcomes, body                         # noqa: E402
from status import STATUS, ask, status                      # noqa: E402

CHAT, PROMPT = '/v1/chat/completions', '/v1/completions'
PLACE = 'llm_capture on; llm_capture_outcome on;' \
        'llm_capture_max_request_bytes 16k;'
SECRET = 'the-password-is-swordfish'
SIZE = 1180, 1000


def traffic(ng, stop):
    """Some of all kinds, until it is told to stop."""
    n = 0
    while not stop.wait(0.02):
        n += 1
        request(ng.port, CHAT, body(n, secret=SECRET, stream=n % 3 == 0))
        if n % 4 == 0:
            request(ng.port, PROMPT, b'{"model":"m","prompt":"a"}')
        if n % 9 == 0:
            request(ng.port, CHAT, b'{"not": json}')
        if n % 13 == 0:
            request(ng.port, '/v1/models', b'{"a":1}')
        if n % 17 == 0:
            request(ng.port, CHAT, b'x' * 20000)


def browse(ng, home, *options):
    """What chromium says on stdout, once 6 s of the page's own time are over."""
    done = subprocess.run(
        ['chromium', '--headless=new', '--no-sandbox', '--disable-gpu',
         '--hide-scrollbars', '--no-first-run', '--disable-extensions',
         '--disable-dev-shm-usage', f'--user-data-dir={home}',
         f'--window-size={SIZE[0]},{SIZE[1]}', '--virtual-time-budget=6000',
         *options, f'http://127.0.0.1:{ng.port}/status?format=html'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, HOME=home), timeout=180)
    if done.returncode:
        diag(done.stderr[-2000:])
    return done.stdout


with case('in a browser'), Upstream() as up, \
        Outcomes(up, PLACE, server=STATUS) as ng, \
        tempfile.TemporaryDirectory() as home:
    stop = threading.Event()
    thread = threading.Thread(target=traffic, args=(ng, stop))
    thread.start()
    try:
        wait_for(lambda: status(ng)['total']['rate']['records_per_second'] > 9,
                 'a rate', 60)
        for scheme, name in ((), 'status'), (('--force-dark-mode',), 'dark'):
            shot = f'{home}/{name}.png'
            browse(ng, home, f'--screenshot={shot}', *scheme)
            ok(os.path.exists(shot), f'{name}: a screenshot')
            image = Image.open(shot).convert('L')
            is_(image.size, SIZE, f'{name}: of that size')
            ok(len(image.getcolors()) > 50, f'{name}: not empty')
            ok((image.getpixel((3, 3)) < 100) == (name == 'dark'),
               f'{name}: its background', image.getpixel((3, 3)))
            shutil.copy(shot, f'{TOP}/build/{name}.png')
        dom = browse(ng, home, '--dump-dom')
    finally:
        stop.set()
        thread.join()

    def text(id):
        found = re.search(rf'id="{id}"[^>]*>(.*?)</(?:span|div|ul|tbody)>',
                          dom, re.S)
        return re.sub('<[^>]*>', ' ', found[1]).strip() if found else ''

    is_(text('state'), 'capturing', 'the state')
    seen = int(text('seen').replace(',', '') or 0)
    got = status(ng)['total']['requests']
    ok(0 < seen <= got['seen'], 'seen', (seen, got['seen']))
    terms = sum(int(n.replace(',', ''))
                for n in re.findall(r'<b>([\d,]+)</b>',
                                    dom.split('id="terms"')[1]
                                    .split('</ul>')[0]))
    is_(terms, seen, 'the sum comes out')
    ok(re.match(r'[1-9]\d*\.\d +records/s', text('rate')), 'the rate',
       text('rate'))
    ok(re.match(r'\d+(\.\d)? +(ms|s)', text('lag')), 'the lag', text('lag'))
    ok(re.search(r'/requests\.(chat|completions)\.jsonl, [1-9][\d.]* (Ki)?B',
                 text('rows')), 'the file', text('rows'))
    points = re.search(r'<polyline points="([^"]*)"', dom)
    ok(points and len(points[1].split()) >= 3, 'it goes on by itself',
       points and points[1])
    ok(SECRET not in dom, 'nothing of a body')

    if os.environ.get('LLM_CAPTURE_LONG'):
        shutil.copy(TOP + '/build/status.png', TOP + '/docs/status.png')

    done = subprocess.run(['promtool', 'check', 'metrics'], text=True,
                          input=ask(ng, '?format=prometheus').body.decode(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    is_((done.returncode, done.stdout), (0, ''), 'promtool has no complaint')
