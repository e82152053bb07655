# ===- layouts.py - What a test bed measures --------------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Models, links and layouts. A step of any of them takes 0.3 to 10 s on ranks of a
tenth of a core: long beside what one exchange waits for."""

from dataclasses import dataclass

LAYERS = 8


@dataclass(frozen=True)
class Model:
    config: dict
    batch: int
    sequence: int


MODELS = {
    # Many weights for its tokens: what replicas exchange counts.
    "gpt2": Model({
        "model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 128,
        "n_layer": LAYERS, "n_head": 8, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "tie_word_embeddings": True,
    }, 16, 64),
    # Many tokens for its weights: what layers exchange counts.
    "llama": Model({
        "model_type": "llama", "vocab_size": 256, "hidden_size": 64,
        "intermediate_size": 192, "num_hidden_layers": LAYERS,
        "num_attention_heads": 8, "num_key_value_heads": 8,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": False,
    }, 8, 256),
}

# Bytes/s that a rank sends to ranks of its node, and to others.
SPEEDS = {"even": (50e6, 50e6), "third": (50e6, 16e6), "tenth": (50e6, 5e6)}


@dataclass(frozen=True)
class Layout:
    """`micro` is a part of the global batch, so that it suits all models: a
    microbatch on one replica has batch / micro sequences."""
    mesh: dict
    micro: int
    schedule: str = "1f1b"
    chunks: int = 1
    zero: int = 0
    context: str = "gather"
    recompute: str = "none"
    offload: str = "none"

    def size(self, axis):
        return self.mesh.get(axis, 1)

    @property
    def name(self):
        words = [f"{axis}{size}" for axis, size in self.mesh.items()]
        words.append(f"m{self.micro}")
        if self.size("pp") > 1:
            words.append(self.schedule)
        if self.zero:
            words.append(f"zero{self.zero}")
        if self.size("cp") > 1:
            words.append(self.context)
        if self.recompute != "none":
            words.append(self.recompute)
        if self.offload != "none":
            words.append(f"off-{self.offload[:3]}")
        return " ".join(words)

    def options(self, model):
        """Everything, so that nothing is left for the planner to choose."""
        stages = self.size("pp") * self.chunks
        axes = ",".join(f"{axis}={self.size(axis)}" for axis in ("pp", "dp", "cp", "tp"))
        return [
            "--mesh", axes, "--micro-batch", str(model.batch // self.micro),
            "--schedule", self.schedule, "--chunks", str(self.chunks), "--layers",
            ",".join([str(LAYERS // stages)] * stages), "--zero", str(self.zero),
            "--context-parallel", self.context, "--recompute", self.recompute,
            "--offload", self.offload]


def make(text, micro, **rest):
    mesh = {word[:2]: int(word[2:]) for word in text.split()}
    return Layout(mesh, micro, **rest)


LAYOUTS = [
    make("dp8", 8), make("dp8", 8, zero=1), make("dp8", 8, zero=2),
    make("dp8", 8, zero=3), make("dp8", 8, zero=1, offload="optimizer"),
    make("dp8", 8, offload="activations"),
    make("dp4 tp2", 4), make("dp4 tp2", 8, zero=1), make("dp4 tp2", 4, zero=3),
    make("dp2 tp4", 2), make("tp8", 1), make("tp8", 4),
    make("dp4 cp2", 4), make("dp4 cp2", 4, context="zigzag"),
    make("dp2 cp4", 2, context="heads"), make("dp2 cp4", 2, context="zigzag", zero=1),
    make("cp8", 1), make("dp2 cp2 tp2", 2, context="zigzag"),
    make("pp2 dp4", 8), make("pp2 dp4", 8, zero=1), make("pp2 dp4", 8, schedule="gpipe"),
    make("pp4 dp2", 8), make("pp4 dp2", 8, schedule="gpipe"),
    make("pp4 dp2", 8, schedule="interleaved-1f1b", chunks=2),
    make("pp4 dp2", 8, schedule="zb-h1"), make("pp4 dp2", 8, recompute="full"),
    make("pp8", 8), make("pp8", 8, schedule="zb-h1"),
    make("pp2 dp2 tp2", 4), make("pp2 dp2 cp2", 4, context="zigzag"),
]
# Of these, by number of nodes, figures of a cluster are fitted: each axis inside of
# a node, and sums and messages between nodes.
CALIBRATED = {1: [make("dp4", 4), make("tp4", 2), make("pp4", 4), make("dp2 tp2", 4)],
              2: [make("dp8", 8), make("pp2 dp4", 8), make("pp8", 8)]}

# For tests: four ranks, minutes.
SHORT = [make("dp4", 4), make("dp2 tp2", 2), make("tp4", 1), make("pp2 dp2", 4),
         make("pp4", 8), make("dp2 cp2", 2)]
SHORT_CALIBRATED = {1: [make("dp2", 2), make("tp2", 2), make("pp2", 4)],
                    2: [make("dp4", 4), make("pp4", 4)]}
