"""Bodies of chat shape, the same ones each time, of an exact size.

    bodies.chat(65536)                the benches' own: history, escapes, some
                                      non-ASCII; a place for a stamp in front
    bodies.KINDS                      what the scan is measured on
"""

import json
import random

SIZES = (1024, 4096, 65536, 262144, 1048576)
NAMES = {1024: '1 KB', 4096: '4 KB', 16384: '16 KB', 65536: '64 KB',
         262144: '256 KB', 1048576: '1 MB'}

# number and time, as load.c writes them
STAMP = '000000000000-0000000000000000000'

ENGLISH = """the ring buffer stalls when a consumer sleeps so explain how
memory is given back after that and why the worker never waits for it please
write a short answer with an example in code and name what could go wrong if
two processes append to one file at once I would like to understand it better
""".split()
ODD = ['“quoted”', 'überprüft', 'naïve', '空', '—', 'día', '🙂', 'Größe']
CHINESE = '请解释一下环形缓冲区在消费者停顿时的行为并给出代码示例说明内存如何归还系统'
EMOJI = '🙂🚀🔥👍🏽🎉🐍✨💾🧠🤖'
CODE = ['\n', '\t', '"key"', "\\d+", 'if (p == NULL) {\n\treturn -1;\n}\n',
        'print("a\\tb")\r\n', 'C:\\temp\\x', '\u0001']


def english(rng):
    words = rng.choices(ENGLISH, k=rng.randint(20, 160))
    return ' '.join(words).capitalize() + '.'


def mixed(rng):
    """What people send: prose, here and there a quote, code, an odd letter."""
    text = english(rng)
    if rng.random() < .4:
        text += ' ' + rng.choice(ODD)
    if rng.random() < .3:
        text += '\n\n```c\n' + rng.choice(CODE[2:5]) + '\n```\n'
    return text


def chinese(rng):
    return ''.join(rng.choices(CHINESE, k=rng.randint(20, 160))) + '。'


def emoji(rng):
    return ''.join(rng.choices(EMOJI + ' ', k=rng.randint(20, 160)))


def escapes(rng):
    return ''.join(rng.choices(CODE, k=rng.randint(20, 60)))


def build(size, text, seed, stamp=False, **dump):
    """A chat history of just `size` bytes."""
    rng = random.Random(seed)
    messages = [{'role': 'system', 'content': 'You are terse.'}]
    body = {'model': 'bench', 'stream': True, 'messages': messages}
    if stamp:
        body = {'bench': STAMP, **body}
    dump.setdefault('ensure_ascii', False)

    def encode():
        return json.dumps(body, **dump).encode()

    used = len(encode())
    while used < size:
        messages.append({'role': ('user', 'assistant')[len(messages) % 2],
                         'content': text(rng)})
        one = json.dumps({'a': [{}, messages[-1]]}, **dump)
        none = json.dumps({'a': [{}]}, **dump)
        used += len(one.encode()) - len(none.encode())
    while used > size:
        text = messages[-1]['content']
        if not text:
            messages.pop()
            used = len(encode())
            continue
        # half of what is too much, by the bytes of a character here
        take = (used - size) * len(text) // len(json.dumps(text, **dump)) // 2
        messages[-1]['content'] = text[:-max(1, min(take, len(text)))]
        used = len(encode())
    messages[-1]['content'] += 'x' * (size - len(encode()))
    data = encode()
    if len(data) != size:
        raise ValueError(f'{len(data)} bytes, not {size}')
    return data


def chat(size):
    return build(size, mixed, size, stamp=True, separators=(',', ':'))


KINDS = {
    'English': lambda n: build(n, english, n),
    'Chinese': lambda n: build(n, chinese, n),
    'emoji': lambda n: build(n, emoji, n),
    'escapes': lambda n: build(n, escapes, n, ensure_ascii=True),
    'pretty-printed': lambda n: build(n, english, n, indent=2),
    'mixed': chat,
}
