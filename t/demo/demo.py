#!/usr/bin/env python3
"""make demo: a minute with the module, told as it happens.

An nginx with the module in front of a mock of an LLM server that streams;
a handful of requests; a clean stop; and what is left: two files that AIPerf
replays.  Only Python's own library.

    demo.py N      N requests more, for docs/capture.svg (make picture)
"""

import grp
import http.client
import json
import os
import pwd
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, 't/lib'))
from plot import plot                                        # noqa: E402
from procs import free_port, wait_for, wait_gone, processes  # noqa: E402
from upstream import Upstream                                # noqa: E402

NGINX = os.environ.get('LLM_CAPTURE_NGINX') or 'nginx'
MODULE = os.path.join(TOP, 'build/ngx_http_llm_capture_module.so')
OUT = os.path.join(TOP, 'build/demo')
COLOUR = sys.stdout.isatty()

CHAT, PROMPT = '/v1/chat/completions', '/v1/completions'

# (path, body); as bytes: what a client sends is kept, to the byte
REQUESTS = [
    (CHAT, r'{"model":"demo","stream":true,"messages":[{"role":"system",'
           r'"content":"Answer \"briefly\".\n"},{"role":"user",'
           r'"content":"Warum ist der Himmel blau? 為什麼天空是藍色的？"}]}'),
    (CHAT, '{\r\n  "model": "demo",\r\n  "seed": 18446744073709551615,\r\n'
           '  "temperature": 1e0,\r\n  "messages": [\r\n'
           '    {"role": "user", "content": "caf\\u00e9 \\ud83d\\ude00 😀"}'
           '\r\n  ]\r\n}\r\n'),
    (PROMPT, '{"model":"demo","prompt":"Once upon a time\\n","max_tokens":8,'
             '"stream":true,"stream_options":{"include_usage":true}}'),
    (CHAT, '{"model":"demo","stream":true,"messages":[{"role":"user",'
           '"content":"What is the weather in Québec?"}],"tools":[{"type":'
           '"function","function":{"name":"weather","parameters":{"type":'
           '"object","properties":{"city":{"type":"string"}}}}}]}'),
    (PROMPT, '{"model":"demo","prompt":["def fib(n):","# naïve"],'
             '"temperature":0.0,"stop":["\\n\\n"]}'),
    (CHAT, '{"model":"demo","messages":[{"role":"user","content":"cut o'),
    ('/tokenize', '{"model":"demo","prompt":"not an endpoint of interest"}'),
]


def bold(text):
    return f'\033[1m{text}\033[0m' if COLOUR else text


def step(text):
    print('\n' + bold('==> ' + text), flush=True)


def say(text=''):
    for line in str(text).splitlines() or ['']:
        print('    ' + line, flush=True)


def short(text, width=100):
    return text if len(text) <= width else text[:width - 3] + '...'


def configure(work, upstream):
    words = {'MODULE': MODULE, 'DIR': work, 'CAPTURE': work + '/llm_capture',
             'PORT': free_port(), 'UPSTREAM': upstream.port, 'USER': ''}

    os.mkdir(words['CAPTURE'], 0o700)
    if os.geteuid() == 0:
        nobody = pwd.getpwnam('nobody')
        os.chown(words['CAPTURE'], nobody.pw_uid, nobody.pw_gid)
        words['USER'] = f'user nobody {grp.getgrgid(nobody.pw_gid).gr_name};'

    with open(HERE + '/nginx.conf') as f:
        text = f.read()
    for name, value in words.items():
        text = text.replace(f'%%{name}%%', str(value))
    with open(work + '/nginx.conf', 'w') as f:
        f.write(text)

    location = re.search(r'^        location .*?^        \}', text,
                         re.S | re.M)[0]
    say(re.sub('^        ', '', location, flags=re.M))
    return words['PORT']


def start(work):
    nginx = subprocess.Popen(
        [NGINX, '-p', work, '-e', work + '/error.log',
         '-c', work + '/nginx.conf'], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def family():
        if nginx.poll() is not None:
            raise RuntimeError('nginx did not start: ' + nginx.stderr.read())
        found = [p for p in processes() if p[1] == nginx.pid]
        return found if len(found) == 3 else None

    children = wait_for(family, 'two workers and the helper')
    for pid, _, title in [(nginx.pid, 0, 'nginx: master process')] + children:
        say(f'{pid:7} {title.split(" /")[0]}')
    return nginx, [child[0] for child in children]


def post(port, path, body):
    client = http.client.HTTPConnection('127.0.0.1', port, timeout=20)
    begin = time.monotonic()
    client.request('POST', path, body.encode(),
                   {'Content-Type': 'application/json'})
    answer = client.getresponse()
    first = answer.read(1)
    ttft = time.monotonic() - begin
    data = first + answer.read()
    spent = time.monotonic() - begin
    client.close()

    events = data.count(b'data: ')
    kind = f'{events} events' if events else f'{len(data)} bytes'
    say(f'{answer.status} {path:21} {len(body.encode()):4} bytes sent,'
        f' {kind:9} back, first after {ttft * 1000:3.0f} ms,'
        f' all after {spent * 1000:3.0f} ms')


def traffic(port, count):
    """Bursts of requests of many lengths, the same each time but for timing."""
    lots, clients, due = random.Random(1), [], 0

    def send(path, body):
        c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        c.request('POST', path, body.encode())
        c.getresponse().read()
        c.close()

    for n in range(count):
        text = 'word ' * int(lots.lognormvariate(5, 1.2))
        path, body = (CHAT, '{"model":"demo","messages":[{"role":"user",'
                            f'"content":"{n}: {text}"}}]}}') \
            if lots.random() < 0.7 else \
            (PROMPT, f'{{"model":"demo","prompt":"{n}: {text[:400]}"}}')
        REQUESTS.append((path, body))
        clients.append(threading.Timer(due, send, (path, body)))
        due += lots.expovariate(60 if due % 3 < 1 else 15)

    for client in clients:
        client.start()
    for client in clients:
        client.join()


def stop(nginx, children):
    nginx.send_signal(3)
    nginx.wait(20)
    for pid in children:
        wait_gone(pid)


def kept(body):
    """A body as it stands in a line: white space at the ends is cut, and what
    follows the first brace; CR and LF, which JSON has only there, are spaces.
    """
    body = re.sub('[\r\n]', ' ', body).strip()
    return '{' + body[1:].lstrip(' \t')


def compare(name, path):
    """The file's payloads must be the bytes that were sent."""
    with open(name, encoding='utf-8', newline='\n') as f:
        rows = f.read().split('\n')[:-1]
    want = sorted(kept(body) for where, body in REQUESTS
                  if where == path and not body.endswith('cut o'))
    got = sorted(row.partition(',"payload":')[2][:-1] for row in rows)
    if got != want:
        raise RuntimeError(f'{name}: not what was sent')
    return rows


def main():
    begin = time.monotonic()
    work = tempfile.mkdtemp(prefix='llm-capture-demo-')
    os.chmod(work, 0o755)
    upstream, nginx = Upstream(pause=0.03), None

    try:
        version = subprocess.run([NGINX, '-v'], stderr=subprocess.PIPE,
                                 text=True, check=True).stderr.split('/')[-1]
        step(f'nginx {version.strip()} with {os.path.relpath(MODULE, TOP)}, '
             'in front of a mock LLM server')
        port = configure(work, upstream)
        say()
        nginx, children = start(work)

        step(f'{len(REQUESTS)} requests; the last two are not for the file: '
             'broken JSON, and another path')
        for path, body in REQUESTS:
            post(port, path, body)

        if len(sys.argv) > 1:
            step(f'{sys.argv[1]} requests more')
            traffic(port, int(sys.argv[1]))

        step('A clean stop: the helper writes what is left, and the tally')
        stop(nginx, children)
        with open(work + '/error.log') as f:
            log = f.read()
        found = re.search(r'llm capture: ".*" (seen .*)', log)
        say(re.sub(r'\+ [a-z_0-9]+ 0 |[a-z_0-9]+ 0 \+ ', '', found[1]))

        step('The strict check: would AIPerf load these files?')
        names = []
        for endpoint in 'chat', 'completions':
            name = f'{OUT}/requests.{endpoint}.jsonl'
            shutil.copyfile(
                f'{work}/llm_capture/requests.{endpoint}.jsonl', name)
            os.chmod(name, 0o600)
            names.append(os.path.relpath(name, TOP))
        subprocess.run([OUT + '/check', *names], check=True, cwd=TOP)

        step('The rows: when it came, in ms, and what the client sent')
        for name, path in zip(names, (CHAT, PROMPT)):
            for n, row in enumerate(compare(os.path.join(TOP, name), path)):
                json.loads(row)
                if n < 5:
                    say(short(row))
        say('(checked: the bytes that were sent, with spaces for line ends)')

        step('When they came, and how long they were')
        plot(OUT + '/capture.svg', [os.path.join(TOP, n) for n in names])
        say(os.path.relpath(OUT + '/capture.svg', TOP))

        step('Replay, with the recorded timing (aiperf==0.13.0)')
        for name, endpoint in zip(names, ('chat', 'completions')):
            print('aiperf profile -m MODEL --tokenizer TOKENIZER '
                  '--url http://SERVER:8000 \\\n'
                  f'    --endpoint-type {endpoint} --streaming \\\n'
                  '    --custom-dataset-type mooncake_trace '
                  f'--input-file {name}')
        say('(TOKENIZER: a name on Hugging Face, or a folder; SERVER knows '
            'the model "demo")')

        step(f'Done in {time.monotonic() - begin:.1f} s')
    finally:
        if nginx and nginx.poll() is None:
            nginx.terminate()
            nginx.wait()
        upstream.close()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    try:
        main()
    except (RuntimeError, TimeoutError, OSError,
            subprocess.CalledProcessError) as e:
        sys.exit(f'demo: {e}')
