# ===- torch_small.py - Small PyTorch modules -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What python_package_torch.py trains: models of transformers, and of nobody."""

SEQUENCE, VOCABULARY = 32, 256


def make_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            dtype="bfloat16",  # what is saved is said to be what it is
        )
    ).float()


def make_neox():
    """Queries, keys and values of one head lie side by side in one matrix, so plait sees
    its rows as three dimensions."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return GPTNeoXForCausalLM(
        GPTNeoXConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            rotary_pct=0.5,
        )
    )


def make_wrapped():
    """Llama as peft wraps it: only adapters are trained."""
    import peft
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            targets = ["q_proj", "down_proj"]
            adapters = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets)
            self.model = peft.get_peft_model(make_llama(), adapters)
            for name, p in self.model.named_parameters():
                if ".lora_B." in name:
                    torch.nn.init.normal_(p, 0, 0.05)

        def forward(self, tokens):
            return self.model(tokens).logits

    return Wrapped().eval()


def make_own():
    """No class that plait knows: parallel blocks, squared ReLU, one matrix for both
    ends."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.attention = nn.Linear(64, 192, bias=False)
            self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x):
            n = self.norm(x)
            heads = [
                y.unflatten(-1, (4, 16)).transpose(1, 2)
                for y in self.attention(n).chunk(3, -1)
            ]
            mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
            mlp = self.down(F.relu(self.up(n)).square())
            return x + mixed.transpose(1, 2).flatten(2) + mlp

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, 64)
            self.place = nn.Parameter(torch.randn(SEQUENCE, 64) * 0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(2))

        def forward(self, tokens):
            x = 0.1 * self.embed(tokens) + self.place[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return x @ self.embed.weight.T

    return Own()
