"""vLLM's side of `sampling.py`: one batch through its offline `LLM` on each round.

    python sampling_vllm.py FOLDER DTYPE SEQUENCES PROMPT NEW THREADS

Runs in vLLM's environment, which knows nothing of turnwise. Threads are bound by the variables that
`sampling.py` sets. The prompts are the same in every round, so its cache of prefixes is off.
"""

import json
import sys
from pathlib import Path

import numpy as np
from contenders import Stopwatch, Worker
from vllm import LLM, SamplingParams


def main() -> None:
    """Sample until nobody asks for another round."""
    worker = Worker()
    folder, dtype, *sizes = sys.argv[1:]
    sequences, prompt, new, _ = map(int, sizes)
    vocabulary = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    engine = LLM(
        model=folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=prompt + new,
        max_num_seqs=sequences,
        enable_prefix_caching=False,
        disable_log_stats=True,
        seed=0,
    )
    drawn = np.random.default_rng(0).integers(3, vocabulary, (sequences, prompt)).tolist()
    prompts = [{"prompt_token_ids": ids} for ids in drawn]
    plain = SamplingParams(temperature=1.0, max_tokens=new, ignore_eos=True, detokenize=False)
    worker.answer()
    while True:
        watch = Stopwatch()
        outputs = engine.generate(prompts, plain, use_tqdm=False)
        times = watch.read()
        lengths = [len(output.outputs[0].token_ids) for output in outputs]
        worker.answer(**times, lengths=lengths)


if __name__ == "__main__":  # vLLM starts processes that import this file
    main()
