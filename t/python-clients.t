#!/usr/bin/env python3
"""The real openai client: what it sends is what is recorded.

Chat and completions, streaming and not, through the module; the mock upstream
keeps the bytes that the client's library put on the wire.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import (Nginx, Upstream, case, is_, ok)  # noqa: E402
from upstream import WORDS                                   # noqa: E402

import openai                                                # noqa: E402

ANSWER = ''.join(WORDS)

MESSAGES = [
    {'role': 'system', 'content': 'Answer "briefly".\n\tTabs\\too.\x00'},
    {'role': 'user', 'content': [
        {'type': 'text', 'text': 'Warum? 為什麼？ 😀 \u2028 \x7f é'},
        {'type': 'image_url',
         'image_url': {'url': 'data:image/png;base64,' + 'iVBORw0K' * 4000}}]},
    {'role': 'assistant', 'content': None, 'tool_calls': [
        {'id': 'call_1', 'type': 'function',
         'function': {'name': 'f', 'arguments': '{"a": "\\u00e9"}'}}]},
    {'role': 'tool', 'tool_call_id': 'call_1', 'content': '1e400'}]

TOOLS = [{'type': 'function', 'function': {
    'name': 'f', 'parameters': {'type': 'object', 'properties': {}}}}]


def chat(client, stream, **more):
    got = client.chat.completions.create(
        model='m', messages=MESSAGES, tools=TOOLS, stream=stream, **more)
    if not stream:
        return got.choices[0].message.content
    return ''.join(e.choices[0].delta.content or '' for e in got if e.choices)


def complete(client, stream, **more):
    got = client.completions.create(
        model='m', prompt=['Once\n', 'upon 😀'], stream=stream, **more)
    if not stream:
        return got.choices[0].text
    return ''.join(e.choices[0].text for e in got if e.choices)


with Upstream(pause=0.005) as up, \
        Nginx(up, location='llm_capture on; proxy_buffering off;',
              workers=2) as ng:

    client = openai.OpenAI(base_url=f'http://127.0.0.1:{ng.port}/v1',
                           api_key='sk-canary-0123456789', max_retries=0)

    for turn, (call, name) in enumerate([(chat, 'chat'),
                                         (complete, 'completions')]):
        with case(name):
            for stream in False, True:
                is_(call(client, stream), ANSWER,
                    f'{name}, stream {stream}: answered')

            is_(call(client, True, seed=2**63 - 1, temperature=0.1,
                     stream_options={'include_usage': True}),
                ANSWER, f'{name}, with options: answered')

            is_(call(client, False, extra_body={'min_tokens': 3, 'nested':
                                                [[], {}, None, True, 1e22]}),
                ANSWER, f'{name}, with more than the API knows: answered')

            sent = [s.body for s in up.requests
                    if s.path.endswith(f'{"/chat" * (name == "chat")}'
                                       '/completions')
                    and ('/chat' in s.path) == (name == 'chat')]
            is_(len(sent), 4, f'{name}: four bodies reached the upstream')

            rows = ng.wait_records(name, 4)
            is_([r.payload for r in rows], sent,
                f'{name}: recorded as sent, in order')
            times = [r.timestamp for r in rows]
            ok(times[0] == 0 and times == sorted(times),
               f'{name}: times from 0 on', times)

    with case('no token anywhere'):
        text = ng.log() + ''.join(r.line.decode() for n in
                                  ('chat', 'completions')
                                  for r in ng.records(n))
        ok('sk-canary' not in text, 'neither in the log nor in the files')

    client.close()
    ng.quit()
    counters = ng.counters()
    is_((counters['seen'], counters['recorded']), (8, 8), 'all recorded')
