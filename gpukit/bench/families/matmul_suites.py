"""The problems of ``gpukit bench matmul --suite``: (M, N, K), data and nothing else.

M is the number of tokens, N x K a weight matrix of a model, stored [N, K]. Of a layer, ``qkv`` and
``up`` stand for the fused projections (query, key and value; gate and up).
"""

from __future__ import annotations

from itertools import product

Shape = tuple[int, int, int]

#: (N, K) of the projections.
LLAMA3_8B = {"qkv": (6144, 4096), "o": (4096, 4096), "up": (28672, 4096), "down": (4096, 14336)}
LLAMA3_70B = {"qkv": (10240, 8192), "o": (8192, 8192), "up": (57344, 8192), "down": (8192, 28672)}
DEEPSEEK_V3 = {"q_a": (2112, 7168), "q_b": (24576, 1536), "down": (7168, 2048)}
GEMMA3_27B = {"up": (43008, 5376), "down": (5376, 21504)}
MODELS = (LLAMA3_8B, LLAMA3_70B, DEEPSEEK_V3, GEMMA3_27B)

#: M: from one token decoded to long prompts.
DECODE = (1, 16, 64, 128)
PREFILL = (512, 4096, 8192)

SQUARES = tuple((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384))
#: Few tiles, an N that no tile divides, nothing aligned.
AWKWARD = ((64, 3072, 3072), (4096, 2112, 7168), (4097, 4095, 4111))


def _crossed(tokens: tuple[int, ...], *weights: tuple[int, int]) -> tuple[Shape, ...]:
    return tuple((m, n, k) for (n, k), m in product(weights, tokens))


_EVERY = tuple(weight for model in MODELS for weight in model.values())

SUITES: dict[str, tuple[Shape, ...]] = {
    "quick": (
        (1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192),
        (1, 6144, 4096), (64, 4096, 14336), (128, 8192, 8192),
        (4096, 2112, 7168), (4097, 4095, 4111),
    ),
    "square": SQUARES,
    "llm": (
        *SQUARES,
        *_crossed((1, 16, 64, 128, 512, 4096), *LLAMA3_8B.values()),
        *_crossed((8192,), LLAMA3_8B["up"], LLAMA3_8B["down"]),
        *_crossed((16, 64, 128), LLAMA3_70B["o"]),
        *_crossed((128, 8192), LLAMA3_70B["qkv"]),
        *_crossed((1, 64, 4096), LLAMA3_70B["up"]),
        *_crossed((16, 512, 4096), LLAMA3_70B["down"]),
        *_crossed((64, 4096), *DEEPSEEK_V3.values()),
        *_crossed((64, 4096), GEMMA3_27B["up"]),
        *_crossed((16, 8192), GEMMA3_27B["down"]),
        (64, 3072, 3072), (4097, 4095, 4111),
    ),
    "decode": _crossed(DECODE, *_EVERY),
    "prefill": _crossed(PREFILL, *_EVERY),
    "llm-full": (*SQUARES, *_crossed((*DECODE, *PREFILL), *_EVERY), *AWKWARD),
}  # fmt: skip
