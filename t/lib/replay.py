"""Real AIPerf on a trace, in its quick form.

    make_tokenizer(work + '/tok')
    code, text = replay(work, 'chat', port, path)
"""

import glob
import os
import signal
import subprocess


def make_tokenizer(path):
    """One token a byte; made here, so that nothing is fetched."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(letters + ['<s>', '</s>', '<pad>'])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=t, bos_token='<s>',
                            eos_token='</s>', pad_token='<pad>') \
        .save_pretrained(path)


def aiperf(work, command, out):
    """(exit code, what it said and logged) of a command that runs AIPerf."""
    env = dict(os.environ, HOME=work, XDG_CACHE_HOME=work + '/cache',
               TMPDIR=work, AIPERF_DATASET_MMAP_CACHE_ENABLED='false')
    for name in 'HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE':
        env.pop(name, None)             # they break a tokenizer folder
    run = subprocess.Popen(command, cwd=work, env=env, text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, start_new_session=True)
    try:
        text, _ = run.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        text = 'AIPerf did not end'
    finally:
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for name in glob.glob(f'{out}/**/*.log', recursive=True):
        with open(name, errors='replace') as f:
            text += f.read()
    return run.returncode, text


def replay(work, endpoint, port, path, kind='mooncake_trace', more=()):
    """The README's command; (exit code, what it said)."""
    out = f'{work}/out.{os.path.basename(path)}'
    command = [
        'aiperf', 'profile', '-m', 'm', '--endpoint-type', endpoint,
        '--streaming', '--url', f'http://127.0.0.1:{port}',
        '--custom-dataset-type', kind, '--input-file', path,
        '--tokenizer', work + '/tok', '--ui', 'none', '--no-gpu-telemetry',
        '--no-server-metrics', '--workers-max', '1', '--artifact-dir', out,
        *more]
    return aiperf(work, command, out)
