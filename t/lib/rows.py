"""Capture files, read strictly."""

import re


class Row:
    """A line of a capture file; payload is the body's bytes."""

    SHAPE = re.compile(rb'\{"timestamp":(0|[1-9][0-9]*)'
                       rb'(?:,"id":"[0-9a-f]{16}")?'
                       rb'(?:,"session_id":"[0-9a-f]{16}")?'
                       rb',"payload":(\{.*\})\}', re.S)

    def __init__(self, line):
        import orjson
        self.line = line
        self.value = orjson.loads(line)
        self.timestamp, self.payload = None, line
        found = self.SHAPE.fullmatch(line)
        if found and 'payload' in self.value:
            self.timestamp, self.payload = int(found[1]), found[2]

    def __repr__(self):
        return f'<{self.timestamp}, {len(self.payload)} bytes>'


def records(path):
    """All lines, strictly: each ends with LF and orjson loads it."""
    try:
        with open(path, 'rb') as f:
            data = f.read()
    except FileNotFoundError:
        return []
    return parse(data, path)


def parse(data, path):
    if data and not data.endswith(b'\n'):
        raise ValueError(f'{path}: the last line is torn')
    return [Row(line) for line in data.split(b'\n')[:-1]]
