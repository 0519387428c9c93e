#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The scan against the parser that AIPerf loads a capture file with.  Bodies
# are made by grammar and by mutation of such bodies; what is decided is
# whether a line made of the body loads, and to which value.  A line's body is
# one '{' and what the scan leaves behind it, as the writer puts it.
#
# usage: scan_orjson.py PROGRAM [COUNT [SEED]]

import os
import random
import struct
import subprocess
import sys

import orjson

sys.setrecursionlimit(20000)

PROGRAM = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 \
    else random.SystemRandom().getrandbits(32)
R = random.Random(SEED)

BORDER = 2 ** 1024 - 2 ** 970
SPACES = [b"", b"", b"", b"", b" ", b"\n", b"\r\n", b"\t", b"  ", b"\n    ",
          b" " * 70]
TEXTS = [b"", b"a", b"role", b"user", b"content", b"messages", b"Messages",
         b"mess\\u0061ges", b"\\u006d\\u0065ssages", b"message", b"messagess",
         b"hello world", b"\\n", b"\\\"", b"\\\\", b"\\/", b"\\b\\f\\r\\t",
         b"\\u0000", b"\\u00e9", b"\\ud83d\\ude00", b"\\uD83D\\uDE00",
         b"\xc3\xa9", b"\xe4\xbd\xa0\xe5\xa5\xbd", b"\xf0\x9f\x98\x80",
         b"\xe2\x80\xa8", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\xc2\x80",
         b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xe0\xa0\x80",
         b"\xf0\x90\x80\x80", b"\x7f", b"x" * 63, b"y" * 64, b"z" * 130,
         b"\xe4\xbd\xa0" * 43]
FAULTS = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
          b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
          b"\xf5\x80\x80\x80", b"\xff", b"\xfe", b"\x80", b"\xbf", b"\xc3",
          b"\xe4\xbd", b"\xf0\x9f\x98", b"\xe4", b"\xef\xbb\xbf", b"\\ud83d",
          b"\\ude00", b"\\ud83d\\u0041", b"\\ud83dx", b"\\ud83d\\n",
          b"\\x", b"\\u12", b"\\u12g4", b"\\u004g", b"\\", b"\x00", b"\x1f",
          b"\n", b"\r",
          b"\t", b"\x0b", b"\x0c", b"\xa0", b"\"", b",", b":", b"{", b"}",
          b"[", b"]", b"NaN", b"Infinity", b"-Infinity", b"nan", b"null",
          b"true", b"false", b"tru", b"nul", b"True", b"-", b"+1", b"01",
          b"1.", b".5", b"1e", b"1e+", b"0x10", b"1_0", b"--1", b"-01", b"00",
          b"1e400", b"-1e400", b"0e999999", b"1e-400", b"/**/", b"//", b"'",
          b"{}", b"[]", b"1", b"0", b"e5", b".0", b" "]


def digits(n):
    return b"".join(b"%d" % R.randrange(10) for _ in range(n))


def shift(text, places):
    """text * 10^-places, the point written out"""
    if places <= 0:
        return text + b"0" * -places
    text = text.rjust(places + 1, b"0")
    return text[:-places] + b"." + text[-places:]


def border():
    """a number a little below, at or above the border, spelled in many ways"""
    value = BORDER + R.choice([-1, 0, 1, -10, 10, 0, 0, -10 ** 292, 10 ** 292,
                               R.randrange(-10 ** 300, 10 ** 300)])
    text = b"%d" % value
    cut = R.choice([309, 309, 308, 307, 300, 20, 19, 18, 17, 16, 3])
    exp = len(text) - cut
    text = text[:cut]
    if R.random() < 0.3:
        places = R.randrange(0, 700)
        text = shift(text, places)
        exp += places
    elif R.random() < 0.3:
        places = R.randrange(1, 400)
        text = text + b"0" * places
        exp -= places
    if R.random() < 0.3:
        text += (b"" if b"." in text else b".") + b"0" * R.randrange(1, 30)
        if R.random() < 0.3:
            text += b"1"
    exp += R.choice([0, 0, 0, 0, 1, -1])
    if exp or R.random() < 0.3:
        sign = b"-" if exp < 0 else R.choice([b"", b"+"])
        text += R.choice([b"e", b"E"]) + sign + b"0" * R.choice([0, 0, 1, 40])
        text += b"%d" % abs(exp)
    return R.choice([b"", b"-"]) + text


def number():
    kind = R.random()
    if kind < 0.5:
        return R.choice([b"0", b"-0", b"1", b"7", b"-1", b"0.7", b"12.50",
                         b"1e5", b"1E+2", b"-2.5e-3", b"0e0", b"0.0",
                         b"18446744073709551615", b"18446744073709551616",
                         b"9223372036854775808", b"-9223372036854775809",
                         b"9007199254740993", b"1e308", b"1e309", b"-1e308",
                         b"1.7976931348623157e308", b"1.7976931348623158e308",
                         b"1.7976931348623159e308", b"2e308", b"5e-324",
                         b"1e-400", b"0e999999999999999999999999",
                         b"0.000e400", b"1e99999999999999999999",
                         b"1e-99999999999999999999",
                         b"1e000000000000000000000000000005"])
    if kind < 0.7:
        return border()
    text = R.choice([b"", b"-"]) + b"%d" % R.randrange(1, 10)
    text += digits(R.choice([0, 1, 5, 17, 18, 19, 20, 62, 63, 64, 307, 308]))
    if R.random() < 0.5:
        text += b"." + digits(R.choice([1, 2, 17, 18, 19, 20, 64, 300]))
    if R.random() < 0.4:
        text += R.choice([b"e", b"E", b"e+", b"e-"])
        text += b"%d" % R.choice([R.randrange(10), R.randrange(400)])
    return text


def space():
    return R.choice(SPACES)


def string():
    text = b"".join(R.choice(TEXTS) for _ in range(R.choice([1, 1, 2, 3])))
    return b'"' + text + b'"'


def value(depth):
    kind = R.random()
    if depth > 4 or kind < 0.3:
        return string()
    if kind < 0.55:
        return number()
    if kind < 0.65:
        return R.choice([b"true", b"false", b"null"])
    if kind < 0.8:
        items = [space() + value(depth + 1) + space()
                 for _ in range(R.randrange(4))]
        return b"[" + (b",".join(items) or space()) + b"]"
    return record(depth + 1)


def record(depth):
    items = [space() + string() + space() + b":" + space() + value(depth)
             + space() for _ in range(R.randrange(4))]
    return b"{" + (b",".join(items) or space()) + b"}"


def short():
    """so small that all its prefixes are bodies too"""
    inner = R.choice([string(), number(), b"[]", b"{}", b"[1,2]", b"null"])
    key = R.choice([b'"a"', b'"messages"', b'""', b'"\\u006dessages"'])
    return b"{" + key + b":" + inner + b"}"


def nested():
    depth = R.choice([1, 2, 3, 63, 64, 65, 127, 128, 129, 511, 1022, 1023,
                      1023, 1024, 1024, 1025])
    kinds = [R.choice([0, 1]) for _ in range(depth - 1)]
    if R.random() < 0.3:
        kinds = [R.choice([0, 1])] * (depth - 1)
    key = R.choice([b'{"a":', b'{"messages":'])
    head = [key] + [b"[" if k else b'{"b":' for k in kinds]
    tail = [b"}"] + [b"]" if k else b"}" for k in kinds]
    return b"".join(head) + R.choice([b"1", b'""', b"null"]) \
        + b"".join(reversed(tail))


def dense():
    """opened by a brace and blanks: orjson is short of memory for this one"""
    return b"{" + R.choice([b"", b" ", b"  ", b"\n  "]) + b'"messages":[' \
        + b"1," * R.choice([800, 936, 937, 938, 939, 5000]) + b"1]}"


def mutate(body):
    body = bytearray(body)
    for _ in range(R.choice([1, 1, 1, 2, 3])):
        at = R.randrange(len(body) + 1)
        kind = R.random()
        if kind < 0.35:
            body[at:at] = R.choice(FAULTS)
        elif kind < 0.5:
            body[at:at + R.choice([1, 1, 2, 8])] = b""
        elif kind < 0.65:
            body[at:at + 1] = bytes([R.randrange(256)])
        elif kind < 0.75 and at < len(body):
            body[at] ^= 1 << R.randrange(8)
        elif kind < 0.85:
            body[at:at + 1] = R.choice(FAULTS)
        elif kind < 0.95:
            other = R.randrange(len(body) + 1)
            body[at:at] = body[other:other + R.randrange(1, 20)]
        else:
            del body[at:]
    return bytes(body)


def make():
    kind = R.random()
    if kind < 0.02:
        return nested()
    if kind < 0.022:
        return dense()
    if kind < 0.03:
        return mutate(nested())
    if kind < 0.05:
        return space() + value(0) + space()
    body = short() if kind < 0.3 else space() + record(1) + space()
    if R.random() < 0.6:
        body = mutate(body)
    return body


def loads(line):
    try:
        return True, orjson.loads(line)
    except orjson.JSONDecodeError as e:
        return False, str(e)


def expect(body):
    """(loads wrapped, loads raw, value) of the body as one line"""
    ok, v = loads(body)
    if not ok and v.startswith("memory allocation failed"):
        start = body.index(b"{") + 1
        ok, v = loads(b"{" + body[start:].lstrip(b" \t\r\n"))
    if not ok or not isinstance(v, dict) or not v:
        return False, False, None
    wrapped, _ = loads(b'{"timestamp":0,"payload":' + body + b"}")
    return wrapped, isinstance(v.get("messages"), list), v


def check(body, got):
    """None, or what is wrong"""
    wrapped, raw, v = expect(body)
    seen_wrapped, seen_raw, lead, head, trail, out = got
    if 255 in (seen_wrapped, seen_raw):
        return "pieces or kernels disagree"
    if (seen_wrapped == 0) != wrapped:
        return "wrapped: verdict %d, orjson %r" % (seen_wrapped, wrapped)
    if (seen_raw == 0) != raw:
        return "raw: verdict %d, orjson %r" % (seen_raw, raw)
    if not wrapped and not raw:
        return None
    if b"\n" in out or b"\r" in out:
        return "a line end is left"
    if len(out) != len(body) or any(
            a != b and (a not in (10, 13) or b != 32)
            for a, b in zip(body, out)):
        return "bytes changed"
    end = len(out) - trail
    if out[:lead].strip(b" \t") or out[end:].strip(b" \t") \
            or out[lead:head].strip(b" \t") != b"{" or out[end - 1] != 125:
        return "lead %d, head %d, trail %d" % (lead, head, trail)
    text = b"{" + out[head:end]
    if wrapped:
        line = b'{"timestamp":7,"payload":' + text + b"}"
        ok, w = loads(line)
        if not ok or repr(w["payload"]) != repr(v):
            return "the wrapped line loads to something else"
    if raw:
        ok, w = loads(text)
        if not ok or repr(w) != repr(v):
            return "the raw line loads to something else"
    return None


def ask(bodies):
    data = b"".join(struct.pack("=I", len(b)) + b for b in bodies)
    done = subprocess.run([PROGRAM, "-"], input=data, stdout=subprocess.PIPE,
                          check=True)
    at = 0
    for body in bodies:
        fields = struct.unpack_from("=BBIII", done.stdout, at)
        at += 14
        yield body, fields + (done.stdout[at:at + len(body)],)
        at += len(body)


def main():
    print("1..4")
    print("# orjson %s, seed %d, %d bodies" % (orjson.__version__, SEED, COUNT))
    made = cut = accepted = wrong = 0
    while made < COUNT:
        bodies = [make() for _ in range(min(2000, COUNT - made))]
        made += len(bodies)
        prefixes = []
        for body in bodies:
            if len(body) <= 40 and R.random() < 0.25:
                prefixes += [body[:n] for n in range(len(body))]
        cut += len(prefixes)
        for body, got in ask(bodies + prefixes):
            what = check(body, got)
            accepted += got[0] == 0
            if what:
                wrong += 1
                if wrong <= 10:
                    print("# %s: %r" % (what, body[:400]))
    total = made + cut
    print("# %d prefixes; accepted %d of %d" % (cut, accepted, total))
    print("%s 1 - the scan decides as orjson does"
          % ("not ok" if wrong else "ok"))
    print("%s 2 - %d bodies were made"
          % ("ok" if made == COUNT else "not ok", COUNT))
    print("%s 3 - a fifth at least was accepted"
          % ("ok" if accepted * 5 >= made else "not ok"))
    print("%s 4 - a fifth at least was refused"
          % ("ok" if (total - accepted) * 5 >= made else "not ok"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
