"""What AIPerf's own loaders say of a file, in this process.

    judge = Loaders(work)
    judge('mooncake_trace', path)       None, or why the file is refused
"""

import logging
import os

from replay import make_tokenizer


class Loaders:
    def __init__(self, work):
        os.environ.setdefault('AIPERF_DATASET_MMAP_CACHE_ENABLED', 'false')
        for name in 'HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE':
            os.environ.pop(name, None)  # they break a tokenizer folder
        logging.disable(logging.CRITICAL)

        from aiperf.common import random_generator
        from aiperf.common.tokenizer import Tokenizer
        from aiperf.dataset.generator.prompt import PromptGenerator
        from aiperf.dataset.loader import base_loader, hash_ids_synthesis
        from aiperf.dataset.loader import (inputs_json, mooncake_trace,
                                           raw_payload)

        make_tokenizer(work + '/tok')
        random_generator.reset()
        random_generator.init(1)
        # prompts are made, but not turned into text by a pool of processes
        hash_ids_synthesis.parallel_decode = \
            lambda tokens, *a, **k: ['x'] * len(tokens)
        self.run = base_loader._default_test_run()
        self.prompts = PromptGenerator(
            prompts=None, prefix_prompts=None,
            tokenizer=Tokenizer.from_pretrained(work + '/tok'))
        self.classes = {
            'mooncake_trace': mooncake_trace.MooncakeTraceDatasetLoader,
            'raw_payload': raw_payload.RawPayloadDatasetLoader,
            'inputs_json': inputs_json.InputsJsonPayloadLoader,
        }
        self.trace = {'mooncake_trace'}

    def add(self, name, loader):
        self.classes[name] = loader
        self.trace.add(name)

    def load(self, kind, path):
        """Conversations, as a run would have them; raises what it raises."""
        more = {'prompt_generator': self.prompts} if kind in self.trace else {}
        loader = self.classes[kind](filename=str(path), run=self.run, **more)
        data = loader.load_dataset()
        found = loader.convert_to_conversations(data)
        for conversation in found:
            conversation.metadata()
        return found

    def __call__(self, kind, path):
        try:
            return None if self.load(kind, path) else 'no rows'
        except Exception as e:
            return f'{type(e).__name__}: {e}'
