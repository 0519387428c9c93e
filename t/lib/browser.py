"""Debian's Chromium without a window, told what to do over a pipe.

    with Browser(home, 1180, 760) as b:
        b.open(url)
        b.wait('document.title', 'a title')
        b.shot(home + '/page.png', dark=True)
"""

import base64
import json
import os
import select
import signal
import subprocess
import time

from procs import wait_for

OPTIONS = ('--headless=new', '--no-sandbox', '--disable-gpu',
           '--hide-scrollbars', '--no-first-run', '--disable-extensions',
           '--disable-dev-shm-usage', '--disable-background-networking',
           '--remote-debugging-pipe')


class Browser:
    def __init__(self, home, width, height, timeout=60):
        self.n, self.timeout, self.data = 0, timeout, b''
        reads, self.out = os.pipe()
        self.inp, writes = os.pipe()

        def ends():
            # the two that --remote-debugging-pipe talks over
            a, b = os.dup(reads), os.dup(writes)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            ['chromium', *OPTIONS, f'--user-data-dir={home}/chromium',
             f'--window-size={width},{height}', 'about:blank'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=ends, close_fds=False,
            env=dict(os.environ, HOME=home), start_new_session=True)
        os.close(reads)
        os.close(writes)
        self.session = None
        page, = [t for t in self.call('Target.getTargets')['targetInfos']
                 if t['type'] == 'page']
        self.session = self.call('Target.attachToTarget', flatten=True,
                                 targetId=page['targetId'])['sessionId']
        self.call('Emulation.setDeviceMetricsOverride', width=width,
                  height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **params):
        """What it returns; events are of no interest here."""
        self.n += 1
        text = {'id': self.n, 'method': method, 'params': params}
        if self.session:
            text['sessionId'] = self.session
        os.write(self.out, json.dumps(text).encode() + b'\0')
        end = time.monotonic() + self.timeout
        while True:
            answer = json.loads(self.message(end))
            if answer.get('id') == self.n:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']

    def message(self, end):
        while b'\0' not in self.data:
            if not select.select([self.inp], [], [],
                                 max(0, end - time.monotonic()))[0]:
                raise TimeoutError('no answer from the browser')
            piece = os.read(self.inp, 65536)
            if not piece:
                raise EOFError('the browser is gone')
            self.data += piece
        one, _, self.data = self.data.partition(b'\0')
        return one

    def open(self, url):
        self.call('Page.navigate', url=url)
        self.wait(f'location.href == {json.dumps(url)}'
                  ' && document.readyState == "complete"', url)

    def eval(self, text):
        got = self.call('Runtime.evaluate', expression=text,
                        returnByValue=True)
        if 'exceptionDetails' in got:
            raise RuntimeError(got['exceptionDetails'])
        return got['result'].get('value')

    def wait(self, text, what, timeout=60):
        """The value of the expression, once it is true."""
        return wait_for(lambda: self.eval(text), what, timeout, step=0.1)

    def shot(self, path, dark=False):
        self.call('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme',
             'value': 'dark' if dark else 'light'}])
        data = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.out)
        os.close(self.inp)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
