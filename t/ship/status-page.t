#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The page of llm_capture_status in a real browser, under traffic, light and
# dark; build/status.png is what docs/status.png was once.  And the metrics, by
# promtool.

import os
import re
import subprocess
import sys
import tempfile
import threading

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))
from browser import Browser                                 # noqa: E402
from llmcapture import *                                    # noqa: E402,F403
from llmcapture import TOP                                  # noqa: E402
from outcomes import Outcomes, body                         # noqa: E402
from status import STATUS, ask, status                      # noqa: E402

CHAT, PROMPT = '/v1/chat/completions', '/v1/completions'
SECRET = 'the-password-is-swordfish'
SIZE = 1180, 800
PLACE = 'llm_capture on; llm_capture_outcome on;' \
        'llm_capture_max_request_bytes 16k;'
TRACE = 'location /trace/ { llm_capture on; llm_capture_format mooncake_trace;' \
        ' llm_capture_path "%%DIR%%/capture/$arg_model.trace.jsonl";' \
        ' llm_capture_endpoint_pattern ^/trace/; proxy_pass http://llm/v1/; }'


class Traffic:
    """Some of all kinds, more and less of it, until the block ends."""

    def __init__(self, ng):
        self.ng, self.stop = ng, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        n = 0
        while not self.stop.wait(0.005 if n // 250 % 2 else 0.05):
            n += 1
            self.send(n)

    def send(self, n):
        port = self.ng.port
        request(port, CHAT, body(n, secret=SECRET, stream=n % 3 == 0))
        if n % 4 == 0:
            request(port, PROMPT, b'{"model":"m","prompt":"a"}')
        if n % 5 == 0:
            request(port, '/trace/chat/completions?model=small', body(n))
        if n % 9 == 0:
            request(port, CHAT, b'{"not": json}')
        if n % 13 == 0:
            request(port, '/v1/models', b'{"a":1}')
        if n % 17 == 0:
            request(port, CHAT, b'x' * 20000)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()


def words(browser, place):
    return ' '.join((browser.eval(
        f'document.querySelector("{place}").innerText') or '').split())


def number(text):
    return int(re.sub(r'\D', '', text) or 0)


def looks(b, name, dark):
    path = f'{TOP}/build/{name}.png'
    b.shot(path, dark)
    image = Image.open(path).convert('L')
    is_(image.size, SIZE, f'{name}: of that size')
    ok(len(image.getcolors()) > 50, f'{name}: not empty')
    ok((image.getpixel((3, 3)) < 100) == dark, f'{name}: its background',
       image.getpixel((3, 3)))


with case('in a browser'), Upstream() as up, \
        Outcomes(up, PLACE, server=STATUS + TRACE) as ng, \
        tempfile.TemporaryDirectory() as home, \
        Browser(home, *SIZE) as b:
    with Traffic(ng):
        b.open(f'http://127.0.0.1:{ng.port}/status?format=html')
        before = b.wait('Number(document.getElementById("seen").innerText)',
                        'the first numbers')
        b.wait('document.querySelector("polyline").points.length >= 40',
               'forty answers', 120)
        ok(number(words(b, '#seen')) > before + 50, 'it goes on by itself')
        looks(b, 'status', False)
        looks(b, 'status-dark', True)
        is_(words(b, '#state'), 'capturing', 'the state')
        like(words(b, '#rate'), r'^[1-9]\d*\.\d records/s$', 'the rate')
        like(words(b, '#lag'), r'^\d+(\.\d)? m?s$', 'the lag')
        like(words(b, '#helper'), rf'^{ng.helper()}$', 'the helper')
        like(words(b, '#rows'), r'payload · requests\.(chat|completions)\.jsonl, \d[\d.]* (Ki)?B',
             'a file')
        like(words(b, '#rows'), r'trace · small\.trace\.jsonl', 'and another')
        # the terms of one answer, which is under way to be replaced
        terms = b.eval('[document.getElementById("seen").innerText,'
                       ' ...[...document.querySelectorAll("#terms b")]'
                       '.map(e => e.innerText)]')
        is_(sum(map(number, terms[1:])), number(terms[0]), 'the sum comes out')
        ok(number(terms[0]) <= status(ng)['total']['requests']['seen'],
           'of what is seen')
        ok(SECRET not in b.eval('document.documentElement.outerHTML'),
           'nothing of a body')
        is_(b.eval('performance.getEntriesByType("resource")'
                   '.filter(e => !e.name.includes("/status?format=json"))'
                   '.length'), 0, 'it asks for nothing but the JSON')

        # a helper that stands still is seen
        pid = ng.freeze()
        b.wait('document.getElementById("waits").className.includes("late")',
               'the warning')
        ng.thaw(pid)
        b.wait('!document.getElementById("waits").className.includes("late")',
               'its end')
    done = subprocess.run(['promtool', 'check', 'metrics'], text=True,
                          input=ask(ng, '?format=prometheus').body.decode(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    is_((done.returncode, done.stdout), (0, ''), 'promtool has no complaint')
    ng.quit()
    b.wait('document.getElementById("state").innerText == "no answer"',
           'nginx to be missed')


with case('nothing captures'), Upstream() as up, \
        Nginx(up, server=STATUS) as ng, \
        tempfile.TemporaryDirectory() as home, \
        Browser(home, *SIZE) as b:
    b.open(f'http://127.0.0.1:{ng.port}/status?format=html')
    b.wait('document.getElementById("state").innerText == "captures nothing"',
           'it to be said')
    done = subprocess.run(['promtool', 'check', 'metrics'], text=True,
                          input=ask(ng, '?format=prometheus').body.decode(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    is_((done.returncode, done.stdout), (0, ''), 'promtool has no complaint')
