#!/usr/bin/env python3
#===- export.py - Models from transformers and back -------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Makes models with Hugging Face's transformers, trains them for twenty steps with
plait on several ranks and with PyTorch, and opens what plait exports with
transformers: the logits of both are the same. The folder is complete: config,
weights without a copy of tied ones, tokenizer. Needs transformers and PyTorch."""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from harness import Reporter, Tools, arguments, require, write_tokens

BATCH, SEQUENCE, STEPS, VOCABULARY = 4, 32, 20, 256
RATE, MOMENTUM = 0.05, 0.9
# Of logits of about 1, after twenty steps with sums in another order.
TOLERANCE = 1e-4

GPT2 = transformers.GPT2Config(
    vocab_size=VOCABULARY, n_positions=64, n_embd=64, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)


def llama(tied: bool, **more) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        **more,
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, tie_word_embeddings=tied,
        bos_token_id=0, eos_token_id=0, torch_dtype="bfloat16",
    )


# Without windows: this version of transformers sees one key more than newer ones.
OTHERS = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "sliding_window": None,
    "bos_token_id": 0, "eos_token_id": 0,
}


CASES = {
    "gpt2/dp=2,tp=2": (GPT2, ("--mesh", "dp=2,tp=2", "--zero", "1")),
    "gpt2/pp=2,dp=2": (GPT2, ("--mesh", "pp=2,dp=2")),
    "llama/dp=2,tp=2": (llama(False), ("--mesh", "dp=2,tp=2")),
    "llama-tied/pp=2,dp=2": (
        llama(True), ("--mesh", "pp=2,dp=2", "--zero", "3"),
    ),
    "llama-linear/cp=2": (
        llama(False, rope_scaling={"type": "linear", "factor": 3.0}),
        ("--mesh", "cp=2"),
    ),
    # Two that read as much of attention as of the MLP, with names of their own.
    "gpt-neox/dp=2,tp=2": (
        transformers.GPTNeoXConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            bos_token_id=0, eos_token_id=0,
        ),
        ("--mesh", "dp=2,tp=2", "--zero", "3"),
    ),
    "phi/pp=2,tp=2": (
        transformers.PhiConfig(**{key: OTHERS[key] for key in OTHERS if key[0] != "s"}),
        ("--mesh", "pp=2,tp=2"),
    ),
    "llama-cached/tp=2": (llama(True), ("--mesh", "tp=2")),
    "mistral/pp=2,tp=2": (
        transformers.MistralConfig(**OTHERS), ("--mesh", "pp=2,tp=2"),
    ),
    # A tensor for each expert.
    "mixtral/pp=2,dp=2": (
        transformers.MixtralConfig(**OTHERS, num_local_experts=4),
        ("--mesh", "pp=2,dp=2", "--zero", "3"),
    ),
    "qwen2/dp=2,tp=2": (
        transformers.Qwen2Config(**OTHERS), ("--mesh", "dp=2,tp=2"),
    ),
}
# Those that the oldest transformers of these tests does not know. A bias that nobody
# trains, and YaRN.
if hasattr(transformers, "DeepseekV3Config"):
    CASES |= {
        "deepseek-v3/dp=2,tp=2": (
            transformers.DeepseekV3Config(
                **OTHERS | {"num_key_value_heads": 4},
                q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12,
                qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=8, n_group=4,
                topk_group=2, num_experts_per_tok=2, moe_intermediate_size=24,
                first_k_dense_replace=1, num_mtp_layers=0,
                rope_parameters={
                    "rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
                    "original_max_position_embeddings": 16,
                },
            ),
            ("--mesh", "dp=2,tp=2"),
        ),
    }
# Layers with a window turn heads in a way of their own.
if hasattr(transformers, "Gemma3TextConfig"):
    CASES |= {
        "gemma3/pp=2,tp=2": (
            transformers.Gemma3TextConfig(
                **OTHERS | {"sliding_window": 8}, head_dim=16, pad_token_id=None,
                query_pre_attn_scalar=24,
            ),
            ("--mesh", "pp=2,tp=2"),
        ),
    }
if hasattr(transformers, "Olmo3Config"):
    CASES |= {
        "olmo3/dp=2,tp=2": (
            transformers.Olmo3Config(
                **OTHERS | {"sliding_window": 8}, pad_token_id=None,
            ),
            ("--mesh", "dp=2,tp=2"),
        ),
    }
# Gate and up in turn, sinks, windows of every other layer; a part of each head turns, with
# a factor, as in Phi-4-mini.
if hasattr(transformers, "GptOssConfig"):
    CASES |= {
        "phi4-mini/pp=2,tp=2": (
            transformers.Phi3Config(
                **OTHERS, pad_token_id=None, tie_word_embeddings=True,
                original_max_position_embeddings=SEQUENCE, partial_rotary_factor=0.75,
                rope_parameters={
                    "rope_type": "longrope", "rope_theta": 100.0,
                    "short_factor": [1.0] * 6, "long_factor": [2.0] * 6,
                },
            ),
            ("--mesh", "pp=2,tp=2"),
        ),
        "gpt-oss/dp=2,ep=2": (
            transformers.GptOssConfig(
                **OTHERS | {"sliding_window": 8},
                head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                rope_parameters={
                    "rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
                    "original_max_position_embeddings": 16, "truncate": False,
                },
            ),
            ("--mesh", "dp=2,ep=2", "--zero", "1"),
        ),
    }


def make_model(config, folder: pathlib.Path):
    """The model, in a folder with a tokenizer."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    model.save_pretrained(folder, safe_serialization=True)
    words = {word: i for i, word in enumerate(("[UNK]", "to", "plait", "is"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]"
    ).save_pretrained(folder)
    return model


def move_to_cache(made: pathlib.Path) -> pathlib.Path:
    """The model as in Hugging Face's cache, whose files are links: in two files with
    an index, and its one matrix for table and head under the head's name."""
    cached = made.parent / "models--me--made"
    snapshot, blobs = cached / "snapshots" / "5a", cached / "blobs"
    for folder in (snapshot, blobs, cached / "refs"):
        folder.mkdir(parents=True)
    (cached / "refs" / "main").write_text("5a")
    weights = load_file(made / "model.safetensors")
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    names, map_ = sorted(weights), {}
    for part in range(2):
        file = f"model-{part}.safetensors"
        map_ |= {name: file for name in names[part::2]}
        save_file({name: weights[name] for name in names[part::2]}, made / file)
    (made / "model.safetensors").unlink()
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": map_}))
    for number, file in enumerate(sorted(made.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return cached


def train(model, tokens) -> None:
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    for step in range(STEPS):
        rows = [
            tokens[k * SEQUENCE : (k + 1) * SEQUENCE + 1]
            for k in range(step * BATCH, (step + 1) * BATCH)
        ]
        batch = torch.stack(rows)
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def check(tools: Tools, config, options, is_cached: bool) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made, exported = folder / "made", folder / "exported"
        model = make_model(config, made)
        untrained = transformers.AutoModelForCausalLM.from_pretrained(made)
        if is_cached:
            made = move_to_cache(made)
        data = folder / "tokens.bin"
        write_tokens(data, 5, STEPS * BATCH * SEQUENCE + 1, VOCABULARY)
        tools.run(
            "plaitc", made, *options, "--optimizer", "sgd",
            *("--global-batch", BATCH, "--micro-batch", 1),
            *("--seq", SEQUENCE, "--no-reference", "-o", folder / "a.plan"),
        )
        tools.run(
            "plait-run", folder / "a.plan", "--weights", made,
            *("--tokens", data, "--token-type", "uint16", "--steps", STEPS),
            *("--lr", RATE, "--beta1", MOMENTUM, "--weight-decay", 0),
            *("--grad-clip", 0, "--export", exported),
        )
        tokens = torch.frombuffer(
            bytearray(data.read_bytes()), dtype=torch.int16
        ).long()
        train(model, tokens)
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
            exported, output_loading_info=True
        )
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            require(not report[key], f"{key}: {report[key]}")
        read = json.loads((exported / "config.json").read_text())
        require(read.get("torch_dtype", "float32") == "float32", "the type")
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
        ids = tokenizer("to plait is to plait")["input_ids"]
        require(ids == [1, 2, 3, 1, 2], f"tokens {ids}")
        rows = tokens[: 8 * SEQUENCE].reshape(8, SEQUENCE)
        with torch.no_grad():
            expected, found = (x.eval()(rows).logits for x in (model, loaded))
        with torch.no_grad():
            moved = (untrained.eval()(rows).logits - expected).abs().max()
        worst = float((found - expected).abs().max())
        require(worst <= TOLERANCE, f"logits are off by {worst:.2g}")
        require(moved > 100 * TOLERANCE, f"training moved them by {moved:.2g}")
        return f"logits up to {found.abs().max():.2g}, off by {worst:.2g}"


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("export", options.filter)
    transformers.logging.set_verbosity_error()
    for name, (config, more) in CASES.items():
        report.case(
            name,
            lambda n=name, c=config, m=more: check(tools, c, m, "cached" in n),
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
