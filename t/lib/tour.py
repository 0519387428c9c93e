#
# Copyright (C) the llm-capture authors
#
# docs/tour.md is run: its files are written, its commands given to a shell, and
# what they say must be what stands there.
#
#     <!-- file PART NAME -->          the block below is a file
#     <!-- run PART -->                the block below is a session
#     <!-- run PART until "TEXT" -->   its last command is given again until it
#                                      says that
#
# With LLM_CAPTURE_TOUR=write what is said now takes the place of what stands
# there.  Times, numbers of processes and the like are no difference.

import os
import re
import subprocess

from llmcapture import TOP, is_, wait_for

TOUR = TOP + '/docs/tour.md'
WRITE = os.environ.get('LLM_CAPTURE_TOUR') == 'write'
BLOCK = re.compile(r'<!-- (file|run) (\w+)(?: (?:until "([^"]*)"|(\S+)))?'
                   r' -->\n\n?'
                   r'```(\w*)\n(.*?)```\n', re.S)

# what is another one each time
ANY = [
    (r'\d{8}T\d{6}\.\d{3}Z', 'UTC'),
    (r'\b1[789]\d{11}\b', 'MS'),
    (r'\b[0-9a-f]{64}\b', 'SHA256'),
    (r'\b[0-9a-f]{16}\b', 'ID'),
    (r'("(?:inode|device|pid|zone|owner|started|since|until|time)"): ?\d+',
     r'\1: N'),
    (r'("(?:first_timestamp|last_timestamp|bytes|plain_bytes)"): ?\d+',
     r'\1: N'),
    (r'("timestamp"): ?\d+', r'\1:N'),
    (r'("\w*_ms"): ?\d+(\.\d+)?', r'\1: N'),
    (r'\b\d+(\.\d+)? (ms|s|MB/s|rows/s)\b', r'N \2'),
    (r'(?m)^(duration|peak \w+|burstiness|end to end|arrivals) .*', r'\1'),
    (r'(?m)^ +0 .*', ''),
    (r'version \d+\.\d+', 'version N'),
    (r'[ \t]+', ' '),
]


def plain(text):
    for pattern, what in ANY:
        text = re.sub(pattern, what, text)
    return text.strip()


class Tour:
    """
    part    of the tour, as in its marks
    cwd     where files are written and commands run
    words   {what is shown: what it is here}: ports
    env     of the shell
    """

    def __init__(self, part, cwd, words=(), env=None):
        self.part, self.cwd = part, cwd
        self.words = dict(words)
        self.env = {**os.environ, **(env or {})}

    def real(self, text):
        for shown, here in self.words.items():
            text = text.replace(str(shown), str(here))
        return text

    def shown(self, text):
        for shown, here in self.words.items():
            text = text.replace(str(here), str(shown))
        return text

    def shell(self, command):
        done = subprocess.run(['sh', '-c', self.real(command)], cwd=self.cwd,
                              env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, timeout=120,
                              stderr=subprocess.STDOUT, text=True)
        return self.shown(done.stdout)

    def shell_until(self, command, until):
        def said():
            text = self.shell(command)
            return text if until in text else None
        return wait_for(said, f'"{until}" of {command}', 60)

    def session(self, block, until):
        commands = re.findall(r'^\$ (.*(?:\\\n.*)*)$', block, re.M)
        out = []
        for i, command in enumerate(commands):
            if until and i == len(commands) - 1:
                text = self.shell_until(command, until)
            else:
                text = self.shell(command)
            if text and not text.endswith('\n'):
                text += '\n'
            out.append(f'$ {command}\n{text}')
        return ''.join(out)

    def block(self, m):
        """What the block is now."""
        kind, part, until, name, _, block = m.groups()
        until = until and until.replace('\\n', '\n')
        if part != self.part:
            pass
        elif kind == 'file':
            with open(os.path.join(self.cwd, name), 'w') as f:
                f.write(self.real(block))
        else:
            said = self.session(block, until)
            if WRITE:
                return m.group(0).replace(block, said)
            is_(plain(said).split('\n'), plain(block).split('\n'),
                block.split('\n')[0])
        return m.group(0)

    def run(self):
        with open(TOUR) as f:
            tour = f.read()
        now = BLOCK.sub(self.block, tour)
        if WRITE:
            with open(TOUR, 'w') as f:
                f.write(now)
            is_(len(BLOCK.findall(now)), len(BLOCK.findall(tour)), 'written')
