#!/usr/bin/env python3

# Copyright (C) the llm-capture authors

"""Directives: what is refused, with which words, and what is only warned of.

A refusal names the directive, the value, what is allowed and the line.
"""

import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))

from life import fds                                    # noqa: E402
from llmcapture import (NGINX, ROOT, USER, Nginx, Upstream, case, diag, is_,
                        like, ok, processes, request, skip,
                        wait_for)                           # noqa: E402

PLACES = 'http', 'server', 'location'
UNUSED = dict(main='', http='', server='', location='')

# directive -> a good value, and one that does not fit with it on one level
GOOD = {
    'llm_capture': 'on',
    'llm_capture_path': '/nowhere/a.jsonl',
    'llm_capture_format': 'raw_payload',
    'llm_capture_max_request_bytes': '64k',
    'llm_capture_sample_rate': '0.5',
    'llm_capture_endpoint_pattern': '^/v1/',
    'llm_capture_session_id': '$arg_a body:metadata.session_id prefix',
    'llm_capture_sample_key': '$arg_a',
    'llm_capture_key_file': '%%DIR%%/key',
    'llm_capture_max_queue_bytes': '512m',
    'llm_capture_args': "'{}'",
    'llm_capture_args_file': '%%DIR%%/args.json',
    'llm_capture_drain_timeout': '2s',
}

HTTP_ONLY = ('llm_capture_max_queue_bytes', 'llm_capture_args',
             'llm_capture_args_file', 'llm_capture_drain_timeout',
             'llm_capture_key_file')

KEY = '0123456789abcdefFEDCBA9876543210'

SIZE = 'it must be (a|"auto" or a) size from 1 to 10?2?4?g, such as '

# directive, value as written, what the message must match besides both names
WRONG = [
    ('llm_capture', 'yes',
     'it must be "on", "off", "paused" or contain variables'),
    ('llm_capture', 'ON', 'it must be "on", "off"'),
    ('llm_capture', '1', 'it must be "on", "off"'),
    ('llm_capture', '""', 'it must be "on", "off"'),

    ('llm_capture_path', '""', 'it must not be empty'),
    ('llm_capture_path', '/a/', 'it must end with the name of a file'),
    ('llm_capture_path', '/', 'it must end with the name of a file'),
    ('llm_capture_path', '/a/.', 'it must end with the name of a file'),
    ('llm_capture_path', '/a/..', 'it must end with the name of a file'),
    ('llm_capture_path', '/a/$host/', 'behind its last slash only'),
    ('llm_capture_path', '/a/$host/b', 'behind its last slash only'),
    ('llm_capture_path', '"/a/${host}/b"', 'behind its last slash only'),
    ('llm_capture_path', '$document_root/b', 'behind its last slash only'),
    ('llm_capture_path', '/a/b.epoch', r'it must not end with ".epoch"'),
    ('llm_capture_path', '"/a/b\\n"', 'control characters'),
    ('llm_capture_path', '/a/b.manifest.json', r'it must not end with'),
    ('llm_capture_path', '/a/b.20261130T061500.123Z.jsonl',
     'or the time of a segment'),
    ('llm_capture_path', '/a/' + 'n' * 217, 'can exceed 216 bytes'),
    ('llm_capture_path', '/a/$host$host$host$host', '64 for a variable'),
    ('llm_capture_path', '/' + 'a/' * 2000 + 'n', 'exceed 4000 bytes'),

    ('llm_capture_format', 'jsonl',
     'it must be "mooncake_payload", "raw_payload", "mooncake_trace" or '
     '"baseten_trace"'),
    ('llm_capture_format', 'Raw_payload', 'it must be "mooncake_payload", "raw'),
    ('llm_capture_format', '$format', 'it must be "mooncake_payload", "raw'),

    *(('llm_capture_max_request_bytes', v, SIZE) for v in (
        '0', '0k', '0g', '-1', '1t', '1.5m', '1mb', 'm', '""', '1025m', '2g',
        'auto', '18446744073709551616', '18014398509481985k')),

    *(('llm_capture_sample_rate', v, 'it must be a number from 0 to 1') for v in
      ('1.1', '-0.1', '.5', '1.', '2', '50%', '1e-1', 'half', '""',
       '1.00000000000000000000000001')),

    ('llm_capture_endpoint_pattern', '"("',
     r'at offset 1: missing closing parenthesis'),
    ('llm_capture_endpoint_pattern', '"[a"', r'at offset 2: missing terminat'),
    ('llm_capture_endpoint_pattern', '"a**+"', r'regular expression'),
    ('llm_capture_endpoint_pattern', '""', r'expression that is not empty'),
    ('llm_capture_endpoint_pattern', '"(*UTF)a"', r'regular expression'),

    *(('llm_capture_max_queue_bytes', v, SIZE) for v in (
        '0', '0m', '1x', '-1', '1025g', '2000g', 'AUTO', '""',
        '99999999999999999999g')),

    *(('llm_capture_drain_timeout', v, 'it must be a time above 0') for v in (
        '0', '0s', '-1', 'x', '4q', '""')),

    *(('llm_capture_session_id', v, 'it must contain variables, be "prefix" or'
       ' "body:" and names between dots, or be "off" alone') for v in (
           '""', 'on', 'Prefix', 'body', 'body:', 'body:.user', 'body:user.',
           'body:a..b', 'body:$arg_a', 'body:' + 'n' * 128)),
    *(('llm_capture_sample_key', v, 'it must contain variables of the request,'
       ' not of its body') for v in (
           '""', 'x', 'prefix', 'body:user', 'body:$arg_a')),

    ('llm_capture_key_file', '""', 'it must be the name of a file'),
    ('llm_capture_key_file', '%%DIR%%', 'it must be a regular file'),
    ('llm_capture_key_file', '%%DIR%%/fifo', 'it must be a regular file'),
    *(('llm_capture_key_file', f'%%DIR%%/key{mode}', 'it must be a file that'
       ' others than its owner and group cannot read or write')
      for mode in ('604', '602', '666')),
    *(('llm_capture_key_file', f'%%DIR%%/{name}', 'it must be a file of 32'
       ' hexadecimal digits, and no more than a line feed behind them')
      for name in ('empty', 'short', 'long', 'letters', 'two-feeds', 'crlf')),

    ('llm_capture_args_file', '""', 'it must be the name of a file'),
    ('llm_capture_args_file', '%%DIR%%', 'it must be a regular file'),
    ('llm_capture_args_file', '%%DIR%%/fifo', 'it must be a regular file'),
    ('llm_capture_args_file', '%%DIR%%/large', 'at most 1m'),
]


def text_of(value):
    """What nginx says a value is: without quotes, cut."""
    value = value.replace('\\n', '\n').strip('"')
    return value if len(value) <= 256 else value[:256] + '...'


def line_of(ng, text):
    with open(ng.conf_file) as f:
        for n, line in enumerate(f, 1):
            if text in line:
                return n


def expand(ng, value):
    return value.replace('%%DIR%%', ng.dir)


def refused(ng, place, directive, value, pattern, name):
    """-t fails at the line of the directive and says the pattern."""
    words = dict(UNUSED)
    words[place] = f'{directive} {value};'
    code, said = ng.test(**words)
    line = line_of(ng, expand(ng, f'{directive} {value};')[:100])
    good = (code == 1 and f'{ng.conf_file}:{line}\n' in said
            and re.search(pattern, said) and '[emerg]' in said)
    ok(good, name, f'exit code {code}, line {line}, said: {said}')
    return said


def key_file(path, text=KEY + '\n', mode=0o600):
    with open(path, 'w') as f:
        f.write(text)
    os.chmod(path, mode)


def tree(top):
    found = []
    for at, dirs, files in os.walk(top):
        for name in sorted(dirs + files):
            st = os.lstat(os.path.join(at, name))
            if name == 'error.log':
                continue            # it is nginx's, and has what was said
            found.append((at, name, st.st_mode, st.st_uid, st.st_size,
                          st.st_mtime_ns, st.st_ctime_ns))
    return found


def users(path):
    """Processes with a file of this directory open, as each nginx has."""
    return [p for p in processes()
            if any(name.startswith(path) for name in fds(p[0]).values())]


def test_wrong_values(ng):
    os.mkfifo(ng.dir + '/fifo')
    with open(ng.dir + '/large', 'w') as f:
        f.write(' ' * (1024 * 1024 + 1))

    for name, text in (('empty', ''), ('short', KEY[:31]), ('long', KEY + '0'),
                       ('letters', KEY[:31] + 'g'), ('two-feeds', KEY + '\n\n'),
                       ('crlf', KEY + '\r\n')):
        key_file(f'{ng.dir}/{name}', text)
    for mode in 0o604, 0o602, 0o666:
        key_file(f'{ng.dir}/key{mode:o}', KEY, mode)

    for directive, value, pattern in WRONG:
        place = 'http' if directive in HTTP_ONLY else 'location'
        said = refused(ng, place, directive, value, pattern,
                       f'{directive} {value[:40]} is refused')
        if 'args_file' not in directive or value == '""':
            want = f'invalid value "{text_of(value)}" in "{directive}"'
            ok(expand(ng, want) in said, '...with its name and value', said)

    refused(ng, 'http', 'llm_capture_args_file', '%%DIR%%/missing',
            r'open\(\) "/\S*/missing" failed \(2: No such file',
            'a missing file of args is refused')
    refused(ng, 'http', 'llm_capture_key_file', '%%DIR%%/missing',
            r'open\(\) "/\S*/missing" of "llm_capture_key_file" failed '
            r'\(2: No such file', 'a missing key file is refused')
    names = ' '.join(f'body:{"n" * 120}{i}' for i in range(30))
    refused(ng, 'location', 'llm_capture_session_id', names,
            'has too many names of members of the body', 'too many names')
    refused(ng, 'location', 'llm_capture_session_id', '$arg_a off',
            'invalid value "off" in "llm_capture_session_id" directive',
            'off beside a value is refused')
    for place in 'http', 'location':
        said = refused(ng, place, 'llm_capture_session_id', 'prefix; llm_capture'
                       ' on; llm_capture_format raw_payload',
                       r'cannot be set with "raw_payload": the "session_id"',
                       f'sessions in {place} with raw_payload are refused')
    code, said = ng.test(**{**UNUSED, 'location':
                            'llm_capture on; llm_capture_path /a/$nosuch;'})
    ok(code == 1 and 'unknown "nosuch" variable' in said,
       'an unknown variable is refused', said)
    refused(ng, 'location', 'llm_capture_path', '/a/$', 'invalid variable name',
            'a lonely dollar is refused')


def test_places(ng):
    for directive, value in GOOD.items():
        for place in 'http', 'server', 'location':
            if place != 'http' and directive in HTTP_ONLY:
                refused(ng, place, directive, value,
                        f'"{directive}" directive is not allowed here',
                        f'{directive} is refused in {place}')
                continue
            words = {**UNUSED, place: f'{directive} {value};'}
            code, said = ng.test(**words)
            is_(code, 0, f'{directive} is taken in {place}') or diag(said)

        refused(ng, 'main', directive, value,
                f'"{directive}" directive is not allowed here',
                f'{directive} is refused outside http')

        code, said = ng.test(**{**UNUSED, 'location':
                                f'if ($arg_a) {{ {directive} {value}; }}'})
        ok(code == 1
           and f'"{directive}" directive is not allowed here' in said,
           f'{directive} is refused in if', said)

        several = directive == 'llm_capture_session_id'
        for bad in ('',) if several else ('', ' a b'):
            words = {**UNUSED, 'http': f'{directive}{bad};'}
            code, said = ng.test(**words)
            ok(code == 1 and 'invalid number of arguments in '
               f'"{directive}" directive' in said,
               f'{directive} with {len(bad.split())} arguments is refused',
               said)


def test_duplicates(ng):
    for directive, value in GOOD.items():
        for place in PLACES:
            if place != 'http' and directive in HTTP_ONLY:
                continue
            words = {**UNUSED, place: f'{directive} {value};\n'
                     f'{directive} {value}; # second'}
            code, said = ng.test(**words)
            at = f'{ng.conf_file}:{line_of(ng, "# second")}\n'
            ok(code == 1 and f'"{directive}" directive is duplicate in {at}'
               in said, f'{directive} twice in {place} is refused', said)

    # off and then on is no other directive, and neither are its defaults
    for first, second in (('llm_capture off', 'llm_capture on'),
                          ('llm_capture_sample_rate 0',
                           'llm_capture_sample_rate 0'),
                          ('llm_capture_max_queue_bytes auto',
                           'llm_capture_max_queue_bytes auto'),
                          ('llm_capture_format mooncake_payload',
                           'llm_capture_format mooncake_payload')):
        code, said = ng.test(**{**UNUSED, 'http': f'{first}; {second};'})
        ok(code == 1 and 'directive is duplicate' in said,
           f'{first}; {second}; is refused', said)

    # rows of both formats in one file would make AIPerf refuse all of it
    for first, second in (('', 'raw_payload'),
                          ('raw_payload', 'mooncake_payload')):
        level = f'llm_capture_format {first};' if first else ''
        location = f"""llm_capture_path %%DIR%%/capture/b.jsonl;
            location /sub {{
                llm_capture_path %%DIR%%/capture/a.jsonl;
                llm_capture_format {second}; # second
            }}"""
        words = {**UNUSED, 'location': location,
                 'http': 'llm_capture on; llm_capture_path '
                         '%%DIR%%/capture/a.jsonl;' + level}
        code, said = ng.test(**words)
        ok(code == 1 and '"llm_capture_format" differs' in said
           and f'{ng.dir}/capture/a.jsonl' in said
           and f'{ng.conf_file}:{line_of(ng, "# second")}\n' in said,
           f'{second} into a file of another format is refused', said)
        words['location'] = location.replace('a.jsonl', 'c.jsonl')
        code, said = ng.test(**words)
        is_(code, 0, 'into another file it is taken') or diag(said)

    for a, b in (('llm_capture_args', 'llm_capture_args_file'),
                 ('llm_capture_args_file', 'llm_capture_args')):
        code, said = ng.test(**{**UNUSED, 'http':
                                f'{a} {GOOD[a]}; {b} {GOOD[b]};'})
        ok(code == 1 and f'"{b}" directive cannot be used together with "{a}"'
           in said, f'{b} after {a} is refused', said)


def test_taken(ng):
    for line in (
            'llm_capture off;',
            'llm_capture $arg_capture;',
            'llm_capture "${arg_capture}x";',
            'llm_capture on; llm_capture_path a.jsonl;',
            'llm_capture on; llm_capture_path /a/$1.jsonl;',
            'llm_capture on; llm_capture_path "/a/${host}_$arg_x.jsonl";',
            'llm_capture on; llm_capture_path /a/$host$arg_a'
            '${llm_capture_endpoint}$arg_b.jsonl;',
            'llm_capture on; llm_capture_path /a/' + 'n' * 216 + ';',
            'llm_capture_max_request_bytes 1;',
            'llm_capture_max_request_bytes 1024K;',
            'llm_capture_max_request_bytes 1M;',
            'llm_capture on; llm_capture_max_request_bytes 1g;',
            'llm_capture_sample_rate 0;',
            'llm_capture_sample_rate 1.0;',
            'llm_capture_sample_rate 0.0000000000000000001;',
            '',
            'llm_capture_endpoint_pattern ^/v1/;',
            'llm_capture_session_id off;',
            'llm_capture_session_id prefix;',
            'llm_capture_session_id "$arg_a-$arg_b" body:user;',
            'llm_capture_session_id off; llm_capture_format raw_payload;',
            'llm_capture_sample_key off;',
            'llm_capture_sample_key "$arg_a$arg_b";',
            'llm_capture_endpoint_pattern "^/v[1-9]/.{1,3}$";'):
        code, said = ng.test(**{**UNUSED, 'location': line})
        is_(code, 0, f'{line[:60] or "nothing"} is taken') or diag(said)

    os.symlink('key', ng.dir + '/key-link')
    key_file(ng.dir + '/key-group', mode=0o440)
    key_file(ng.dir + '/key-bare', KEY)

    for line in ('llm_capture_max_queue_bytes auto;',
                 'llm_capture_max_queue_bytes 1g;',
                 'llm_capture_max_queue_bytes 1G;',
                 'llm_capture_key_file key;',
                 'llm_capture_key_file key-link;',
                 'llm_capture_key_file key-group;',
                 'llm_capture_key_file key-bare;',
                 'llm_capture_drain_timeout 1ms;',
                 'llm_capture_drain_timeout 1m;'):
        code, said = ng.test(**{**UNUSED, 'http': 'llm_capture on;' + line})
        is_(code, 0, f'{line} is taken') or diag(said)

    conf = ng.conf
    code, said = ng.test('%%LOAD%%\npid %%DIR%%/nginx.pid;\nevents {}\n')
    is_(code, 0, 'no http block is no error') or diag(said)
    ng.configure(conf)


def least(workers, request_bytes):
    page = os.sysconf('SC_PAGESIZE')
    ring = (request_bytes + 65536 + page - 1) // page * page
    return (2 * workers + 14) * ring


def test_sums(ng):
    for workers, size, at in ((1, '1m', 1 << 20), (3, '100k', 100 << 10),
                              (16, '1', 1)):
        need = least(workers, at)
        words = {**UNUSED, 'workers': workers, 'location':
                 f'llm_capture on; llm_capture_max_request_bytes {size};'}

        words['http'] = f'llm_capture_max_queue_bytes {need};'
        code, said = ng.test(**words)
        is_(code, 0, f'{need} bytes are enough for {workers} workers') \
            or diag(said)

        words['http'] = f'llm_capture_max_queue_bytes {need - 1};'
        code, said = ng.test(**words)
        line = line_of(ng, 'llm_capture_max_queue_bytes')
        ok(code == 1 and re.search(
            rf'"llm_capture_max_queue_bytes" of {need - 1} bytes is too small: '
            rf'each of the {2 * workers + 14} rings for {workers} worker '
            rf'processes .* "llm_capture_max_request_bytes", {at}, .* at least '
            rf'{need} in {re.escape(ng.conf_file)}:{line}\n', said),
           'one byte less is refused, with all the numbers', said)

    # the largest of all places counts, wherever capture can be on
    words = {**UNUSED, 'workers': 1,
             'http': f'llm_capture_max_queue_bytes {least(1, 1 << 20)};',
             'server': 'location /a { llm_capture on;'
                       ' llm_capture_max_request_bytes 2m; }',
             'location': 'llm_capture on;'}
    code, said = ng.test(**words)
    ok(code == 1 and f'at least {least(1, 2 << 20)} in' in said,
       'the largest request of all places counts', said)

    words['server'] = words['server'].replace(' on;', ' off;')
    is_(ng.test(**words)[0], 0, '...but not where capture is off')

    words['server'] = words['server'].replace(' off;', ' $arg_a;')
    is_(ng.test(**words)[0], 1, '...and a variable may turn it on')

    # the workers are counted when all is read
    conf = ng.conf
    code, said = ng.test(
        conf.replace('worker_processes %%WORKERS%%;', '')
        + '\nworker_processes 8;\n', **{
            **UNUSED, 'location': 'llm_capture on;',
            'http': f'llm_capture_max_queue_bytes {least(1, 1 << 20)};'})
    ok(code == 1 and f'at least {least(8, 1 << 20)} in' in said,
       'worker_processes may stand behind http', said)
    ng.configure(conf)


def test_no_trace():
    """nginx -t makes no file, directory or process."""
    # where a start would make the directory
    ng = Nginx(path='', start=False, http='llm_capture on;',
               prefix='/var/lib' if ROOT else None,
               location='llm_capture_path %%DIR%%/new/sub/requests.jsonl;',
               server='location /a { llm_capture_path %%DIR%%/a.jsonl; }')
    try:
        # what nginx makes for itself: its temporary directories, its log
        code, said = ng.run('-t')
        is_(code, 0, 'the configuration is good') or diag(said)
        before = tree(ng.dir)
        default = tree('/var/log/nginx/llm_capture')
        for args in ('-t',), ('-T',), ('-t', '-q'):
            code, said = ng.run(*args)
            is_(code, 0, f'nginx {" ".join(args)} is content') or diag(said)
        is_(tree(ng.dir), before, 'nothing was made or touched')
        ok(not os.path.exists(ng.dir + '/new'), 'no directory')
        is_(tree('/var/log/nginx/llm_capture'), default,
            'nothing at the default place')
        is_(users(ng.dir), [], 'no process is left')
    finally:
        ng.finish()


def test_default_path():
    """Beside the access log of the build; nothing is recorded there."""
    built = subprocess.run([NGINX, '-V'], text=True,
                           stderr=subprocess.PIPE).stderr
    found = re.search(r'--http-log-path=(/\S+)', built)
    if not found or not ROOT:
        return skip('the default path', 'not root, or built without one')
    at = os.path.dirname(found.group(1)) + '/llm_capture'
    there = os.path.exists(at)

    with Upstream() as up, Nginx(up, path='', location='llm_capture on;') as ng:
        st = os.stat(at)
        is_((stat.S_ISDIR(st.st_mode), oct(st.st_mode & 0o777)),
            (True, oct(0o700)), f'{at} is there, for its owner alone')
        is_(request(ng.port, '/other', b'{"a":1}').status, 200, 'served')
        ng.quit()
        row = ng.counters(at + '/requests.$llm_capture_endpoint.jsonl')
        is_(row and (row['seen'], row['unmatched']), (1, 1),
            'it is the default path')
    if not there:
        os.rmdir(at)


def fresh(path):
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def test_file_system(ng):
    """Warned of, and no more than that."""
    capture = ng.dir + '/capture'
    at = capture + '/a.jsonl'

    def look(pattern, name, path=at, level='warn'):
        code, said = ng.test(**{**UNUSED, 'location':
                                f'llm_capture on; llm_capture_path {path};'})
        ok(code == 0 and (re.search(rf'\[{level}\].*' + pattern, said)
                          if pattern else 'llm capture' not in said),
           name, f'exit code {code}: {said}')

    look(None, 'nothing to say of a good place')

    os.mkdir(at)
    look('a.jsonl" is a directory', 'a directory in place of the file')
    fresh(at)
    os.mkfifo(at)
    look('a.jsonl" is a fifo', 'a fifo')
    fresh(at)
    os.symlink('/etc/passwd', at)
    look('a.jsonl" is a symbolic link', 'a link')
    fresh(at)
    os.symlink('nowhere', at)
    look('a.jsonl" is a symbolic link', 'a link to nowhere')
    fresh(at)
    server = socket.socket(socket.AF_UNIX)
    server.bind(at)
    look('a.jsonl" is not a regular file', 'a socket')
    server.close()
    fresh(at)

    open(at, 'w').close()
    if ROOT:
        os.chmod(at, 0o644)
        look('a.jsonl" is not open to the user of the worker processes',
             "root's file")
        shutil.chown(at, USER)
    look(None, 'its own file')
    fresh(at)

    look(f'directory "{ng.dir}/nowhere" is missing, and will not be made',
         'a missing directory below /tmp', ng.dir + '/nowhere/a.jsonl') \
        if ng.dir.startswith('/tmp') and ROOT else None
    look(f'"{ng.conf_file}" (is not a directory|cannot be used)|'
         f'directory "{ng.conf_file}" cannot be used',
         'a file in place of the directory', ng.conf_file + '/a.jsonl')
    look(f'directory "{ng.conf_file}/b" cannot be used',
         'a file above the directory', ng.conf_file + '/b/a.jsonl')

    if ROOT:
        os.chown(capture, 0, 0)
        os.chmod(capture, 0o755)
        look(f'directory "{capture}" is not writable by the user of the '
             'worker processes', "root's directory")
        gid = pwd.getpwnam(USER).pw_gid
        os.chown(capture, 0, gid)
        os.chmod(capture, 0o775)
        look(None, "a directory of the user's group")
        os.chmod(capture, 0o777)
        os.mkdir(capture + '/shut', 0o700)
        os.mkdir(capture + '/shut/in', 0o777)
        os.chmod(capture + '/shut/in', 0o777)
        look(f'directory "{capture}/shut" is closed to the user',
             'a closed directory above', capture + '/shut/in/a.jsonl')
        shutil.rmtree(capture + '/shut')
        shutil.chown(capture, USER)
        os.chmod(capture, 0o700)


def test_directories():
    """Made at a start, below root's directories, for the worker's user."""
    if not ROOT:
        return skip('directories are made', 'not root')

    before = os.umask(0o077)
    user = pwd.getpwnam(USER)
    with Upstream() as up, \
            Nginx(up, path='', prefix='/var/lib',
                  location='llm_capture on; llm_capture_path '
                  '%%DIR%%/one/two/three/r.$llm_capture_endpoint.jsonl;',
                  server='location /b { proxy_pass http://llm; llm_capture on;'
                  ' llm_capture_path %%DIR%%/kept/r.jsonl; }',
                  start=False) as ng:
        os.mkdir(ng.dir + '/kept', 0o750)
        os.chmod(ng.dir + '/kept', 0o750)
        ng.start()
        os.umask(before)

        st = os.stat(ng.dir + '/one/two/three')
        is_((oct(stat.S_IMODE(st.st_mode)), st.st_uid, st.st_gid),
            (oct(0o700), user.pw_uid, user.pw_gid),
            'the directory is 0700 and the user\'s')
        st = os.stat(ng.dir + '/one/two')
        is_((oct(stat.S_IMODE(st.st_mode)), st.st_uid), (oct(0o755), 0),
            'those above are root\'s, and open')
        st = os.stat(ng.dir + '/kept')
        is_((oct(stat.S_IMODE(st.st_mode)), st.st_uid), (oct(0o750), 0),
            'one that exists is left as it is')

        body = b'{"messages":[]}'
        is_(request(ng.port, '/v1/chat/completions', body).status, 200,
            'a request is served')
        wait_for(lambda: os.path.exists(
            ng.dir + '/one/two/three/r.chat.jsonl'), 'the file')

        # a reload makes what it needs
        ng.reload(location='llm_capture on;'
                  ' llm_capture_path %%DIR%%/later/r.jsonl;')
        ok(os.path.isdir(ng.dir + '/later'), 'a reload makes directories too')

    # somebody could put a link in the way; what waits is lost at the end
    with Upstream() as up, \
            Nginx(up, path='', prefix='/var/lib', allow='1 requests lost',
                  http='llm_capture_drain_timeout 50ms;',
                  location='llm_capture on;'
                  ' llm_capture_path %%DIR%%/open/new/r.jsonl;',
                  start=False) as ng:
        os.mkdir(ng.dir + '/open')
        os.chmod(ng.dir + '/open', 0o1777)
        ng.start()
        is_(request(ng.port, '/v1/completions', b'{"a":1}').status, 200,
            'served')
        ok(not os.path.exists(ng.dir + '/open/new'),
           'nothing is made where others can write')
        like(ng.log(), r'\[warn\].*"\S*/open/new" is missing, and will not be '
             r'made', 'that is said')

        ng.quit()
        os.rmdir(ng.dir + '/open')
        os.mkdir(ng.dir + '/real')
        os.chmod(ng.dir + '/real', 0o777)
        os.symlink('real', ng.dir + '/open')
        ng.start()
        ok(not os.path.exists(ng.dir + '/real/new'),
           'nor through a link to such a place')


def test_pattern_limit():
    """A pattern that would take for ever is given up, and said so once."""
    path = '/' + 'a' * 3000 + '!SECRET'
    with Upstream() as up, Nginx(
            up, location='llm_capture on; llm_capture_endpoint_pattern'
            ' "^/(a?)*?(a*)*(.)*[0-9]$";') as ng:
        for _ in range(3):
            is_(request(ng.port, path, b'{"a":1}').status, 200, 'served')
        ng.quit()
        row = ng.counters()
        is_((row['seen'], row['unmatched']), (3, 3), 'unmatched')
        warned = re.findall(r'\[warn\].*gave up on.*', ng.log())
        is_(len(warned), 1, 'one warning in a minute')
        ok('SECRET' not in ng.log(), 'without the path')


def test_path_values():
    """Variables of the name: with braces, captures, and what they may be."""
    with Upstream() as up, Nginx(
            up, path='', server='location ~ ^/t/(.*)/v1 { llm_capture on;'
            ' proxy_pass http://llm; llm_capture_endpoint_pattern completions$;'
            ' llm_capture_path'
            ' "%%DIR%%/capture/a${arg_t}_$1.${llm_capture_endpoint}$arg_u";'
            ' }') as ng:
        for tail, name in (
                ('/t/one/v1/completions?t=T&u=end', 'aT_one.completionsend'),
                ('/t/one/v1/completions', 'anone_one.completionsnone'),
                ('/t/x%20y/v1/chat/completions?t=a%2Fb&u=.e',
                 'aa_2Fb-1_x_y-1.chat_e-1')):
            is_(request(ng.port, tail, b'{"a":1}').status, 200, 'served')
            name = re.sub('-[0-9a-f]+', '-[0-9a-f]{16}', name)
            wait_for(lambda: [n for n in os.listdir(ng.dir + '/capture')
                              if re.fullmatch(name, n)],
                     name)
            ok(True, f'{tail} is in {name}')


ng = Nginx(path='', start=False, level='notice')
try:
    with open(ng.dir + '/args.json', 'w') as f:
        f.write('{}\n')
    key_file(ng.dir + '/key')

    for test in (test_wrong_values, test_places, test_duplicates, test_taken,
                 test_file_system):
        with case(test.__name__):
            test(ng)

    with case('test_sums'):
        sums = Nginx(path='', start=False)
        try:
            test_sums(sums)
        finally:
            sums.finish()
finally:
    ng.finish()

for test in (test_no_trace, test_default_path, test_directories,
             test_pattern_limit, test_path_values):
    with case(test.__name__):
        test()
