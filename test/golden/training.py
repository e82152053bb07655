#===- training.py - The reference training loop -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a Hugging Face model with PyTorch the way a plait step is defined."""

import copy
import dataclasses
import json
import pathlib
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

MODEL_CLASSES = {
    "cohere": (transformers.CohereConfig, transformers.CohereForCausalLM),
    "deepseek_v2": (
        transformers.DeepseekV2Config,
        transformers.DeepseekV2ForCausalLM,
    ),
    "deepseek_v3": (
        transformers.DeepseekV3Config,
        transformers.DeepseekV3ForCausalLM,
    ),
    "gemma": (transformers.GemmaConfig, transformers.GemmaForCausalLM),
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
    "gemma3_text": (
        transformers.Gemma3TextConfig,
        transformers.Gemma3ForCausalLM,
    ),
    "glm": (transformers.GlmConfig, transformers.GlmForCausalLM),
    "glm4": (transformers.Glm4Config, transformers.Glm4ForCausalLM),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "gpt_neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM),
    "gpt_oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM),
    "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
    "olmo": (transformers.OlmoConfig, transformers.OlmoForCausalLM),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
    "olmo3": (transformers.Olmo3Config, transformers.Olmo3ForCausalLM),
    "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM),
    "phi": (transformers.PhiConfig, transformers.PhiForCausalLM),
    "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen2_moe": (
        transformers.Qwen2MoeConfig,
        transformers.Qwen2MoeForCausalLM,
    ),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        transformers.Qwen3MoeForCausalLM,
    ),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
    "stablelm": (
        transformers.StableLmConfig,
        transformers.StableLmForCausalLM,
    ),
    "starcoder2": (
        transformers.Starcoder2Config,
        transformers.Starcoder2ForCausalLM,
    ),
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The run-time inputs of a training run, as `plait-run` takes them."""

    steps: int = 5
    seq: int = 32
    global_batch: int = 8
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    grad_clip: float = 1.0


def build_model(config_path: pathlib.Path) -> torch.nn.Module:
    """The model of a config.json, in fp32, without dropout, eager attention."""
    fields = json.loads(config_path.read_text())
    config_class, model_class = MODEL_CLASSES[fields["model_type"]]
    config = config_class(**fields)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = model_class(config).to(torch.float32)
    # Dropout is off; nothing else depends on the mode.
    return model.eval()


def trainable_names(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters under their file names, each once (a tied head is skipped)."""
    return dict(model.named_parameters(remove_duplicate=True))


def biases(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What routers choose experts with, which is not trained."""
    return {
        name: buffer
        for name, buffer in model.named_buffers()
        if name.endswith("e_score_correction_bias")
    }


def file_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What a model folder has: a tensor for each expert, where the model in
    memory has one for all, and names that it had in earlier releases."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = pathlib.Path(folder) / "model.safetensors"
        return safetensors.torch.load_file(path)


class RoutingMargin:
    """The least distance between the scores of the last expert that is chosen
    and of the first one that is not, over all tokens that a model has seen:
    below the rounding of either program they may choose differently. Of groups
    of experts likewise."""

    def __init__(self, model: torch.nn.Module):
        self.least = float("inf")
        for module in model.modules():
            if type(module).__name__.lower().endswith("topkrouter"):
                module.register_forward_hook(self.note)

    def note(self, module, inputs, outputs) -> None:
        logits = outputs[0].detach().double()
        bias = getattr(module, "e_score_correction_bias", None)
        if bias is None:
            self.compare(logits.softmax(-1), module.top_k)
            return
        scores = logits.sigmoid() + bias.double()
        groups = scores.unflatten(-1, (module.num_group, -1))
        sums = groups.topk(2, dim=-1).values.sum(-1)
        self.compare(sums, module.topk_group)
        kept = torch.zeros_like(sums).scatter_(
            -1, sums.topk(module.topk_group, dim=-1).indices, 1
        )
        scores = groups.masked_fill(kept[..., None] == 0, -1e9).flatten(-2)
        self.compare(scores, module.top_k)

    def compare(self, scores: torch.Tensor, count: int) -> None:
        if count == scores.shape[-1]:
            return
        top = scores.topk(count + 1, dim=-1).values
        self.least = min(self.least, (top[:, -2] - top[:, -1]).min().item())


def batch(tokens: numpy.ndarray, recipe: Recipe, step: int):
    """Inputs and targets of `step`, from 1: S+1 tokens a sample, stride S."""
    seq, size = recipe.seq, recipe.global_batch
    samples = (len(tokens) - 1) // seq
    first = (step - 1) * size
    rows = [
        tokens[k * seq : k * seq + seq + 1]
        for k in ((first + row) % samples for row in range(size))
    ]
    block = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
    return block[:, :-1], block[:, 1:]


def clip(parameters, limit: float) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_, with the squares summed in fp64: its own
    fp32 sum over GPT-2's 38 M embedding gradients is off by up to 3e-3."""
    gradients = [p.grad for p in parameters]
    total = sum(g.double().square().sum() for g in gradients).sqrt()
    scale = min(1.0, limit / (total.item() + 1e-6))
    for gradient in gradients:
        gradient.mul_(scale)
    return total


class Balance:
    """What plaitc's --balance adds to the training of a mixture of experts, of
    sequences whose targets all count: `terms` as that has them, "z=0.001"."""

    def __init__(self, model: torch.nn.Module, terms: tuple[str, ...]):
        pairs = (term.split("=") for term in terms)
        self.factors = {kind: float(number) for kind, number in pairs}
        self.routers, self.seen = [], []
        for module in model.modules():
            if type(module).__name__.lower().endswith("topkrouter"):
                self.routers.append(module)
                module.register_forward_hook(self.note)

    def note(self, module, inputs, outputs) -> None:
        self.seen.append((outputs[0], outputs[2]))

    def add(self, batch: int):
        """What the loss has more."""
        total = 0.0
        for router, (logits, ids) in zip(self.routers, self.seen):
            experts = logits.shape[-1]
            logits = logits.view(batch, -1, experts)
            ids = ids.view(batch, logits.shape[1], -1)
            sigmoid = hasattr(router, "e_score_correction_bias")
            shares = logits.sigmoid() if sigmoid else logits.exp()
            shares = (shares / shares.sum(-1, keepdim=True)).mean(1)
            often = torch.nn.functional.one_hot(ids, experts).sum((1, 2))
            even = ids[0].numel() / experts
            total += self.factors.get("sequence", 0.0) * (
                (often / even * shares).sum(-1).mean()
            )
            total += self.factors.get("z", 0.0) * (
                logits.logsumexp(-1).square().mean()
            )
        return total

    def update(self) -> None:
        """Once a step, of all its tokens."""
        for router, (logits, ids) in zip(self.routers, self.seen):
            if "bias" in self.factors:
                often = torch.bincount(ids.flatten(), minlength=logits.shape[-1])
                often = often.to(logits.dtype)
                router.e_score_correction_bias += self.factors["bias"] * (
                    (often.mean() - often).sign()
                )
        self.seen.clear()


def backpropagate(
    model: torch.nn.Module, inputs, targets, balance: Balance | None = None
) -> torch.Tensor:
    """The loss, of logits in fp32 or more; gradients lie at the parameters."""
    logits = model(input_ids=inputs, use_cache=False).logits
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    )
    if balance:
        loss = loss + balance.add(len(inputs))
    model.zero_grad()
    loss.backward()
    return loss


class MixedModel:
    """Computes in bf16 on a copy of a model's fp32 parameters, as Megatron-LM
    does with --bf16: the optimizer works on the fp32 masters and fp32 copies
    of the gradients. Buffers, such as rotary frequencies, stay fp32."""

    def __init__(self, model: torch.nn.Module):
        self.masters = trainable_names(model)
        self.copy = copy.deepcopy(model)
        for parameter in self.copy.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)

    def __call__(self, inputs, targets, balance) -> torch.Tensor:
        copies = trainable_names(self.copy)
        with torch.no_grad():
            for name, master in self.masters.items():
                copies[name].copy_(master)
        loss = backpropagate(self.copy, inputs, targets, balance)
        for name, master in self.masters.items():
            master.grad = copies[name].grad.float()
        return loss


def train(
    model: torch.nn.Module,
    tokens: numpy.ndarray,
    recipe: Recipe,
    mixed=False,
    balance: tuple[str, ...] = (),
):
    """Returns a record of every step; the norm is the one before clipping.
    `mixed` computes in bf16, see MixedModel."""
    parameters = [p for p in trainable_names(model).values() if p.requires_grad]
    mixed_model = MixedModel(model) if mixed else None
    balanced = Balance(mixed_model.copy if mixed else model, balance)
    groups = [
        {
            "params": [p for p in parameters if p.dim() >= 2],
            "weight_decay": recipe.weight_decay,
        },
        {
            "params": [p for p in parameters if p.dim() < 2],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
    )
    limit = recipe.grad_clip if recipe.grad_clip > 0 else float("inf")
    records = []
    for step in range(1, recipe.steps + 1):
        inputs, targets = batch(tokens, recipe, step)
        if mixed_model:
            loss = mixed_model(inputs, targets, balanced)
        else:
            loss = backpropagate(model, inputs, targets, balanced)
        norm = clip(parameters, limit)
        optimizer.step()
        with torch.no_grad():
            balanced.update()
        records.append(
            {"step": step, "loss": loss.item(), "grad_norm": norm.item()}
        )
    return records
