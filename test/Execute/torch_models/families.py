# ===- families.py - Small models of transformers -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""One small model of each family, by what its configuration class is called."""

import torch
import transformers

VOCABULARY = 64
_HIDDEN, _HEADS, _LAYERS = 32, 4, 2

_ALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": _HIDDEN,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_GROUPED = _ALL | {"num_key_value_heads": 2, "intermediate_size": 48, "pad_token_id": None}
_HEAD = _GROUPED | {"head_dim": 8}
_MULTI = _ALL | {"intermediate_size": 64}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _rope(kind: str, **more) -> dict:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


_LLAMA3 = _rope(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
_YARN = _rope("yarn", factor=4.0, original_max_position_embeddings=16)

# The class before "Config" and before "ForCausalLM", and what the configuration has.
FAMILIES = {
    "gpt2": (
        "GPT2",
        {
            **{"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": _HIDDEN},
            **{"n_layer": _LAYERS, "n_head": _HEADS},
            **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        },
    ),
    "llama": ("Llama", _GROUPED),
    "llama-3": ("Llama", _GROUPED | {"head_dim": 32} | _LLAMA3),
    "llama-linear": ("Llama", _GROUPED | _rope("linear", factor=3.0)),
    "llama-yarn": ("Llama", _GROUPED | {"head_dim": 32} | _YARN),
    "llama-tied": ("Llama", _GROUPED | {"tie_word_embeddings": True}),
    "mistral": ("Mistral", _GROUPED | {"sliding_window": 6}),
    "phi3": ("Phi3", _GROUPED),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", _HEAD),
    # The soft cap of the scores is in this implementation of attention alone.
    "gemma2": ("Gemma2", _HEAD | {"sliding_window": 8, "attn_implementation": "eager"}),
    "gemma3": ("Gemma3", _HEAD | {"sliding_window": 8, "num_hidden_layers": 6}),
    "olmo2": ("Olmo2", _GROUPED),
    "granite": ("Granite", _GROUPED | {"residual_multiplier": 0.5, "logits_scaling": 2.0}),
    "smollm3": ("SmolLM3", _GROUPED | {"num_hidden_layers": 4}),
    "gpt-neox": ("GPTNeoX", _MULTI | {"rotary_pct": 0.5}),
    "opt": (
        "OPT",
        _ALL
        | {
            "ffn_dim": 64,
            "word_embed_proj_dim": _HIDDEN,
            "dropout": 0.0,
            "pad_token_id": 1,
        },
    ),
    "starcoder2": (
        "Starcoder2",
        _GROUPED
        | {"sliding_window": None, "residual_dropout": 0.0, "embedding_dropout": 0.0},
    ),
    "glm4": ("Glm4", _HEAD),
    "cohere": ("Cohere", _GROUPED),
    "bert": ("Bert", _MULTI | _NO_DROPOUT),
    "modernbert": (
        "ModernBert",
        _MULTI
        | {"num_hidden_layers": 3, "local_attention": 8, "pad_token_id": 0}
        | {"cls_token_id": 0, "sep_token_id": 0},
    ),
    "mixtral": ("Mixtral", _GROUPED),
}
# Those that plaitc reads from config.json, too.
IMPORTED = (
    *("gemma2", "gemma3", "gpt2", "granite", "llama", "llama-3", "llama-linear"),
    *("mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"),
)
_CONFIGS = {"gemma3": "Gemma3TextConfig"}
_MODELS = {
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
}


def make(name: str) -> torch.nn.Module:
    """The model, in training mode, with weights of its own initialisation."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    family, fields = FAMILIES[name]
    config = getattr(transformers, _CONFIGS.get(name, f"{family}Config"))(**fields)
    model = getattr(transformers, _MODELS.get(name, f"{family}ForCausalLM"))
    return model(config).train()
