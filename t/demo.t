#!/usr/bin/env python3
"""make demo, twice, and its strict check against files that must not pass."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import TOP, is_, like, ok, processes        # noqa: E402

CHECK = TOP + '/build/demo/check'


def run(*command):
    done = subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300)
    return done.returncode, done.stdout


for turn in 'once', 'again':
    before = {p[0] for p in processes()}
    code, text = run('make', 'demo')
    ok(code == 0, f'make demo, {turn}', text)
    like(text, r'seen 7 = unmatched 1 \+ invalid_json 1 \+ recorded 5 \+',
         'the tally')
    like(text, r'requests\.chat\.jsonl: 3 lines, all good', 'the chat file')
    like(text, r'requests\.completions\.jsonl: 2 lines, all good',
         'the completions file')
    left = [p for p in processes() if p[0] not in before and 'nginx' in p[2]
            and 'llm-capture-demo' in p[2]]
    is_(left, [], 'nothing runs on')

GOOD = b'{"timestamp":7,"payload":{"a":1}}\n'

for name, data, passes in [
        ('a good file', GOOD * 3, True),
        ('an empty file', b'', False),
        ('a torn last line', GOOD + GOOD[:-1], False),
        ('a blank line', GOOD + b'\n', False),
        ('a BOM', b'\xef\xbb\xbf' + GOOD, False),
        ('bytes that are no UTF-8', GOOD.replace(b'a', b'\xe9'), False),
        ('a lone surrogate', GOOD.replace(b'a', b'\\ud83d'), False),
        ('NaN', GOOD.replace(b'1', b'NaN'), False),
        ('an empty payload', GOOD.replace(b'"a":1', b''), False),
        ('a payload that is a list', GOOD.replace(b'{"a":1}', b'[1]'), False),
        ('a row without payload', b'{"timestamp":7,"text":"a"}\n', False),
        ('two objects in a line', GOOD[:-1] + GOOD, False)]:
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        code, text = run(CHECK, f.name)
        ok((code == 0) == passes,
           f"{name} is {'good' if passes else 'refused'}", text)
