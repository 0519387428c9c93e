#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Who belongs to whom: rows of a session have one id, made under a key, and no
# name of a session goes anywhere.

import glob
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED, Echo, accepted                 # noqa: E402
from llmcapture import *                                # noqa: E402,F403
from outcomes import CHAT, LAST, Outcomes, Stream, body     # noqa: E402
from replay import make_tokenizer, replay               # noqa: E402
from sessions import *                                  # noqa: E402,F403

DEFAULT = ('X-Session-Affinity', 'X-Session-ID', 'X-Dynamo-Session-ID',
           'X-SMG-Routing-Key', 'X-Correlation-ID')
KEY, OTHER = '00112233445566778899aAbBcCdDeEfF', 'f' * 32
KEY_FILE = 'llm_capture_key_file %s;'


def alike(ids):
    """1 1 2 None 1: each by the first time it comes."""
    seen = []
    for i in ids:
        if i is not None and i not in seen:
            seen.append(i)
    return [i and seen.index(i) + 1 for i in ids]


def key_file(path, text=KEY + '\n', mode=0o600):
    with open(path, 'w') as f:
        f.write(text)
    os.chmod(path, mode)
    return KEY_FILE % path


with case('the headers that name one by default'), mock.Upstream() as up, \
        Sessions(up) as ng:
    ng.ask()
    for name in DEFAULT:
        ng.ask({name: 'alice'})
    ids = ng.ids()
    is_(alike(ids), [None, 1, 1, 1, 1, 1], 'each of them, all alike')
    ok(re.fullmatch('[0-9a-f]{16}', ids[1]), '16 digits', ids[1])
    for k, name in enumerate(DEFAULT):
        ng.ask({n: f'{n} {i < k}' if i < k else 'bob'
                for i, n in enumerate(DEFAULT) if i >= k})
        ng.ask({**{n: '' for n in DEFAULT[:k]}, name: 'carol'})
        ng.ask({name: 'dave', **{n: 'eve' for n in DEFAULT[k + 1:]}})
    is_(alike(ng.ids()[6:]), [1, 2, 3] * 5, 'the first that is not empty')
    ng.ask({'X-Session-Affinity': 'x' * 1025, 'X-Session-ID': 'alice'})
    ng.ask({'X-Session-Affinity': 'x' * 1025})
    ng.ask({'X-Session-Affinity': 'x' * 1024})
    is_(alike(ids[1:2] + ng.ids()[21:]), [1, 1, None, 2],
        'one that is too long counts as empty')


NAMES = ('$arg_s body:prompt_cache_key body:user body:metadata.session_id '
         'body:conversation $http_x_session_id prefix')

with case('names in the body'), mock.Upstream() as up, \
        Sessions(up, NAMES) as ng:
    ng.ask({'X-Session-ID': 'alice'})
    for more in ({'prompt_cache_key': 'alice'}, {'user': 'alice'},
                 {'metadata': {'session_id': 'alice'}},
                 {'conversation': 'alice'}, {'conversation': {'id': 'alice'}},
                 {'user': 'alice', 'conversation': 'bob'},
                 {'user': '', 'conversation': 'alice'},
                 {'user': 7, 'metadata': {'session_id': ['bob']},
                  'conversation': 'alice'},
                 {'user': 'x' * 1025, 'conversation': 'alice'},
                 {'user': '\u0061lice'}):
        ng.ask({'X-Session-ID': 'bob'}, **more)
    ng.ask(query='?s=alice', user='bob')
    is_(set(alike(ng.ids())), {1}, 'wherever it stands it is the same')
    ng.ask(user='Älice \U0001f600')
    ng.ask(query='?s=%s', user='a\0b')
    ng.ask(user='a\0c')
    is_(alike(ng.ids()[11:]), [1, 2, 3, 4], 'others are others')
    request(ng.port, CHAT, chunks=[
        bytes([c]) for c in ng.body(user='alice')])
    big = ng.body(text='x' * 500000, user='alice')
    request(ng.port, CHAT, big)
    is_(alike(ng.ids()[:1] + ng.ids()[15:]), [1] * 3,
        'in a body that comes in pieces')
    request(ng.port, CHAT, b'{"n":17,"user":"alice","messages":7}')
    request(ng.port, CHAT, b'{"n":18,"b":' + b'[{},{}]' + b'}')
    ng.sent += 2
    is_(alike(ng.ids()[:1] + ng.ids()[17:]), [1, 1, None],
        'and in one that is no chat')


def talk(*texts, system='s'):
    return [{'role': 'system', 'content': system}] + [
        {'role': 'assistant' if i % 2 else 'user', 'content': text}
        for i, text in enumerate(texts)]


with case('the beginning of a conversation'), mock.Upstream() as up, \
        Sessions(up, 'prefix') as ng:
    for turns in (talk('a'), talk('a', 'x', 'b'), talk('a', 'x', 'b', 'y', 'c'),
                  talk('b'), talk('a', system='t'), talk('b', 'x', 'a')):
        ng.ask({'X-Session-ID': 'not asked'}, messages=turns)
    ng.ask(messages=[])
    is_(alike(ng.ids()), [1, 1, 1, 2, 3, 2, None], 'turns of one are alike')


with case('off'), mock.Upstream() as up, Sessions(up, 'off') as ng:
    ng.ask({'X-Session-ID': 'alice'}, user='alice')
    is_(ng.ids(), [None], 'none')


with case('raw_payload'), mock.Upstream() as up, \
        Sessions(up, location='llm_capture_format raw_payload;') as ng:
    data = ng.body()
    request(ng.port, CHAT, data, headers={'X-Session-ID': 'alice'})
    is_(ng.wait_records('chat', 1)[0].line, data, 'is the body alone')
    is_(os.listdir(ng.dir + '/capture'), ['requests.chat.jsonl'], 'no key')


with case('a key of the file'), mock.Upstream() as up, Sessions(up) as ng:
    def ask(*names):
        for name in names:
            ng.ask({'X-Session-ID': name} if name else ())

    ask('', '')
    ng.rows()
    path = ng.path('chat') + '.key'
    ok(not os.path.exists(path), 'none without a session')
    ask('alice', 'bob')
    first = ng.ids()[2:]
    st, text = os.stat(path), open(path).read()
    is_((oct(st.st_mode), st.st_nlink), ('0o100600', 1), 'its mode')
    ok(re.fullmatch('[0-9a-f]{32}\n', text), 'its text', text)
    is_(first, [session_id(text.strip(), n) for n in ('alice', 'bob')],
        'the ids are what it makes of the names')
    is_([n for n in os.listdir(ng.dir + '/capture') if 'tmp' in n], [],
        'nothing else is left')
    request(ng.port, '/v1/completions', b'{"prompt":"a"}',
            headers={'X-Session-ID': 'alice'})
    ok(ng.wait_records('completions', 1)[0].value['session_id'] not in first,
       'another file has another key')
    for end in ('QUIT', 'TERM'):
        ng.stop(end)
        ng.start()
        ask('alice', 'bob')
        is_(ng.ids()[-2:], first, f'the same after {end}')
    ng.reload()
    ask('bob')
    is_(ng.ids()[-1], first[1], 'and after a reload')
    shutil.copy(ng.path('chat'), ng.dir + '/chat.1')
    os.unlink(ng.path('chat'))
    ng.reopen()
    ng.sent = 0
    ask('alice')
    is_(ng.ids(), first[:1], 'the next file has it too')
    ng.quit()
    os.unlink(path)
    ng.start()
    ask('alice')
    ok(ng.ids()[-1] not in first, 'a new key gives other ids')


ODD = {'text': lambda p: open(p, 'w').write('key'),
       'a key that all can read': lambda p: key_file(p, mode=0o604),
       'a link': lambda p: os.symlink(p + '.key', p),
       'a directory': os.mkdir, 'a fifo': os.mkfifo}

for what, make in ODD.items():
    with case(f'{what} in the place of the key'), mock.Upstream() as up, \
            Sessions(up) as ng:
        path = ng.path('chat') + '.key'
        make(path)
        if os.path.isfile(path):
            shutil.chown(path, USER)
        before = os.lstat(path)
        for _ in range(2):
            ng.ask({'X-Session-ID': 'alice'})
        ids = ng.ids()
        is_(alike(ids), [1, 1], 'there are ids')
        ok(session_id(KEY, 'alice') not in ids, 'not by that key')
        after = os.lstat(path)
        is_((after.st_ino, after.st_mtime_ns, oct(after.st_mode)),
            (before.st_ino, before.st_mtime_ns, oct(before.st_mode)),
            'it stays as it is')
        like(ng.log(), r'\[warn\].*the .key file is no key that only its owner '
             r'and group can read', 'and is warned of')
        is_([n for n in os.listdir(ng.dir + '/capture') if 'tmp' in n], [],
            'nothing else is left')


with case('a key that cannot be kept'), mock.Upstream() as up, \
        Sessions(up, start=False) as ng:
    if ROOT:
        with open(ng.path('chat'), 'w'):
            shutil.chown(ng.path('chat'), USER)
        shutil.chown(ng.dir + '/capture', 'root')
        os.chmod(ng.dir + '/capture', 0o755)
        ng.start()
        for n in ('alice', 'bob', 'alice'):
            ng.ask({'X-Session-ID': n})
        is_(alike(ng.ids()), [1, 2, 1], 'lives in memory')
        like(ng.log(), r'\[warn\].*cannot keep the .key file', 'is warned of')
        os.chmod(ng.dir + '/capture', 0o777)
        ng.reload()
        ng.ask({'X-Session-ID': 'alice'})
        ng.rows()
        ok(os.path.exists(ng.path('chat') + '.key'), 'until it can')
    else:
        skip('a key that cannot be kept', 'only root takes a directory away')


with case('a key file'), mock.Upstream() as up, \
        Sessions(up, start=False) as ng, Sessions(up, start=False) as peer:
    ng.configure(http=ng.words['HTTP'] + key_file(ng.dir + '/key'))
    peer.configure(http=peer.words['HTTP']
                   + key_file(peer.dir + '/key', KEY.lower(), 0o440))
    for x in ng, peer:
        x.start()
        x.ask({'X-Session-ID': 'alice'})
        x.ask({'X-Correlation-ID': 'bob'})
    want = [session_id(KEY, 'alice'), session_id(KEY, 'bob')]
    is_(ng.ids(), want, 'its ids')
    is_(peer.ids(), want, 'those of another nginx are the same')
    is_(glob.glob(ng.dir + '/capture/*.key'), [], 'there is no other key')
    ng.quit()
    ng.start()
    ng.ask({'X-Session-ID': 'alice'})
    is_(ng.ids()[2:], want[:1], 'also after a restart')


with case('another key by a reload'), mock.Upstream() as up, \
        Outcomes(up, start=False, allow='emerg') as ng:
    ng.configure(http=ng.words['HTTP'] + key_file(ng.dir + '/key'))
    ng.start()
    alice = {'X-Session-ID': 'alice'}
    s = up.actions[CHAT] = Stream(LAST)
    c = Connection(ng.port)
    c.head(CHAT, len(body(0)), alice)
    c.send(body(0))
    wait_for(lambda: ng.requests(), 'the request')
    for text, mode, what in (('', 0o600, 'hexadecimal'),
                             (OTHER, 0o644, 'owner and group')):
        key_file(ng.dir + '/key', text, mode)
        like(' '.join(ng.reload_fails()), what, 'a bad one is refused')
    key_file(ng.dir + '/key', OTHER)
    old = ng.helper()
    ng.reload()
    s.go(10)
    is_(c.response().complete, True, 'answered')
    c.close()
    is_(request(ng.port, CHAT, body(1), headers=alice).status, 200, 'served')
    rows, requests = ng.wait_rows(2), ng.requests()
    is_([r['session_id'] for r in requests],
        [session_id(KEY, 'alice'), session_id(OTHER, 'alice')],
        'a request has the id of its key')
    is_({r['id']: r['session_id'] for r in rows},
        {r['id']: r['session_id'] for r in requests},
        'and an outcome that of its request')
    like(ng.log(), r'\[notice\].*the key of llm_capture_key_file is another '
         'one', 'a notice')
    size = len(ng.log())
    ng.reload()
    ok('is another one' not in ng.log()[size:], 'none when it is the same')


with case('outcomes'), mock.Upstream() as up, Outcomes(up) as ng:
    for n, name in enumerate(('', 'alice', 'bob', 'alice')):
        request(ng.port, CHAT, body(n),
                headers={'X-Session-ID': name} if name else ())
    rows = {r['id']: r.get('session_id') for r in ng.wait_rows(4)}
    requests = ng.requests()
    is_(alike([r.get('session_id') for r in requests]), [None, 1, 2, 1],
        'of requests')
    is_([rows[r['id']] for r in requests],
        [r.get('session_id') for r in requests], 'are those of outcomes')


HOSTILE = ['"}\t{"x":1,', '\\u0000\\', '../../etc/passwd', '%00%0a', "';--",
           '\xff\xfe\x80', 'a' * 300, '<script>', '$remote_addr', '=',
           'body:user', 'prefix', ' ', '0123456789abcdef']

with case('names that would do harm'), mock.Upstream() as up, \
        Sessions(up, '$http_x_session_id $arg_s body:user',
                 level='debug') as ng:
    names = [f'secret{v}' if v.strip() != '' else v for v in HOSTILE]
    for name in names:
        ng.ask({'X-Session-ID': name})
        ng.ask(query='?s=' + ''.join('%%%02x' % b for b in name.encode()))
    rows = ng.rows()
    is_([sorted(set(r) - {'session_id'}) for r in rows.values()],
        [['payload', 'timestamp']] * len(rows), 'rows are as always')
    is_(len({r['session_id'] for r in rows.values() if 'session_id' in r}),
        2 * (len(names) - 1) + 1, 'each its own id')
    ng.quit()
    data = b''.join(open(p, 'rb').read()
                    for p in glob.glob(ng.dir + '/capture/*'))
    ok(b'secret' not in data, 'none is in a file')
    ours = [line for line in ng.log().splitlines() if 'llm capture' in line]
    ok(ours and 'secret' not in '\n'.join(ours), 'none is in a line of ours')


with case('the helper killed'), Sessions(
        echo := Echo(), http=echo.conf, workers=2, allow=KILLED) as ng:
    for _ in range(4):
        pid = ng.freeze()
        with Connection(ng.port) as c:
            for _ in range(150):
                n = ng.sent
                data = ng.body(user='x' * (n % 50))
                c.head(CHAT, len(data), {'X-Session-ID': f's{n % 10}'})
                c.send(data)
                c.response()
        ng.thaw(pid)
        wait_for(lambda: os.path.exists(ng.path('chat'))
                 and os.path.getsize(ng.path('chat')), 'a row')
        ng.signal('KILL', pid)
        ng.new_helper(pid)
    ids = ng.ids()
    key = open(ng.path('chat') + '.key').read().strip()
    want = [session_id(key, f's{n}') for n in range(10)]
    is_(len(ids), ng.sent, 'each once')
    ok(all(i == want[n % 10] for n, i in enumerate(ids)), 'with its session')


with case('an upload that is moved out of its ring'), Sessions(
        echo := Echo(), '$http_x_session_id body:user', http=echo.conf
        + 'llm_capture_max_request_bytes 64k;'
        f'llm_capture_max_queue_bytes {16 * (128 << 10)};',
        allow=KILLED) as ng:
    held = []
    for more, headers in (({}, {'X-Session-ID': 'alice'}),
                          ({'user': 'bob'}, {})):
        data = ng.body(**more)
        c = Connection(ng.port)
        c.head(CHAT, len(data), headers)
        c.send(data[:9])
        wait_for(lambda: accepted(c), 'it to be read')
        held.append((c, data[9:]))
    # more than the ring holds: unless they were moved it would be full
    for n in range(20):
        if n in (10, 15):
            pid = ng.helper()
            ng.signal('KILL', pid)
            ng.new_helper(pid)
        ng.ask(text='x' * 30000)
        ng.wait_records('chat', n + 1)
    for c, rest in held:
        c.send(rest)
        is_(c.response().status, 200, 'served')
        c.close()
    ids = ng.ids()
    key = open(ng.path('chat') + '.key').read().strip()
    is_(ids[:2], [session_id(key, n) for n in ('alice', 'bob')],
        'keeps its session over two helpers')
    is_(set(ids[2:]), {None}, 'others have none')
    ng.quit()
    is_(ng.counters()['recorded'], ng.sent, 'all of them')


STATUS = 'add_header X-Capture $llm_capture_status always;'
SAMPLE = STATUS + 'llm_capture_sample_rate %s;' \
    'llm_capture_sample_key $http_x_session_id;'


def decisions(ng, names):
    with Connection(ng.port) as c:
        found = []
        for name in names:
            data = ng.body()
            c.head(CHAT, len(data), {'X-Session-ID': name} if name else {})
            c.send(data)
            found.append(c.response().headers['x-capture'] == 'queued')
        return found


with case('sampling by session'):
    names = [f'user {n}' for n in range(1000)]
    got = {}
    for key in ('', KEY, OTHER):
        for workers in (1, 2):
            echo = Echo()
            with Sessions(echo, http=echo.conf, location=SAMPLE % 0.25,
                          workers=workers, start=False) as ng:
                if key:
                    ng.configure(http=ng.words['HTTP']
                                 + key_file(ng.dir + '/key', key))
                ng.start()
                first = decisions(ng, names)
                is_(decisions(ng, names[:200]), first[:200],
                    'a second request goes where the first went')
                is_(first, [kept(key or '0' * 32, n, 0.25) for n in names],
                    f'{workers} workers: as the key says')
                got.setdefault(key, []).append(first)
    for key, both in got.items():
        is_(both[0], both[1], 'two nginx decide alike')
        ok(150 < sum(both[0]) < 350, 'about a quarter is kept', sum(both[0]))
    ok(got[''][0] != got[KEY][0] != got[OTHER][0], 'another key decides anew')


with case('sampling where there is no session'), Sessions(
        echo := Echo(), http=echo.conf, location=SAMPLE % 0.5) as ng:
    ok(350 < sum(decisions(ng, [''] * 1000)) < 650, 'each for itself')


for rate, want in ((0, False), (1, True)):
    with case(f'sampling at {rate}'), Sessions(
            echo := Echo(), http=echo.conf, location=SAMPLE % rate) as ng:
        is_(set(decisions(ng, [f'{n}' for n in range(100)])), {want},
            'takes all or nothing')


with case('AIPerf'), tempfile.TemporaryDirectory(
        prefix='llm-capture-sessions-') as work, \
        mock.Upstream(pause=0.005) as up:
    who = ['a', 'b', 'a', '', 'c', 'b', 'a', 'b', '', 'a']
    make_tokenizer(work + '/tok')
    with Sessions(up) as ng:
        for n, name in enumerate(who):
            ng.ask({'X-Session-Affinity': name} if name else {}, model='m',
                   stream=True, max_tokens=n + 1)
            time.sleep(0.05)
        ids = ng.ids()
        is_(alike(ids), [1, 2, 1, None, 3, 2, 1, 2, None, 1], 'captured')
        shutil.copy(ng.path('chat'), work + '/first.jsonl')
    up.requests.clear()
    with Sessions(up, location='llm_capture_skip_replay off;') as ng:
        code, text = replay(work, 'chat', ng.port, work + '/first.jsonl')
        ok(code == 0, 'AIPerf replays it') or diag(text[-4000:])
        ng.sent = len(who)
        again = ng.rows()
    sent = [(json.loads(seen.body)['n'], seen.headers)
            for seen in up.requests if seen.method == 'POST']
    is_(sorted(n for n, _ in sent), list(range(len(who))), 'each row was sent')
    for name in 'abc':
        mine = [n for n, w in enumerate(who) if w == name]
        is_([n for n, _ in sent if n in mine], mine,
            f'{name}: its turns in their order')
        is_({headers[h.lower()] for n, headers in sent if n in mine
             for h in ('X-Correlation-ID', 'X-Session-Affinity')},
            {f'fixed-schedule-{ids[mine[0]]}'}, f'{name}: under its id')
    again = [again[n].get('session_id') for n in range(len(who))]
    is_(alike(again), [1, 2, 1, 3, 4, 2, 1, 2, 5, 1],
        'captured once more they are the same sessions')
