#===- configs.py - Small models of golden runs -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The config.json of golden cases, each with what its family has."""

GPT2_SMALL = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.0,
    "bos_token_id": 320,
    "embd_pdrop": 0.0,
    "eos_token_id": 320,
    "resid_pdrop": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 4,
    "n_positions": 64,
    "tie_word_embeddings": True,
    # Not a multiple of any mesh axis: shards of the vocabulary are padded.
    "vocab_size": 321,
}

LLAMA_SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "max_position_embeddings": 128,
    "mlp_bias": False,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 320,
}

# Head dimension 8 and these bounds put one frequency in each branch of the
# rule: kept, interpolated, divided.
LLAMA3_SMALL = LLAMA_SMALL | {
    "num_hidden_layers": 2,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
}

# Each with what its family has beside Llama's: a window shorter than the
# sequence; biases before attention and windows of some layers; norms of heads,
# whose size is not that of hidden / heads; merged projections.
MISTRAL_SMALL = LLAMA_SMALL | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "head_dim": 16,
    "num_hidden_layers": 2,
    "sliding_window": 9,
}
QWEN2_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 1,
    "num_hidden_layers": 3,
    "sliding_window": 12,
    "tie_word_embeddings": True,
    "use_sliding_window": True,
}
QWEN3_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "num_hidden_layers": 2,
    "rope_theta": 1000000.0,
}
PHI3_SMALL = LLAMA_SMALL | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "num_hidden_layers": 2,
    "original_max_position_embeddings": 128,
    "pad_token_id": None,
    "sliding_window": 20,
}
# Mixtures of experts, without the loss that balances them: that depends on how a
# batch is cut.
MIXTRAL_SMALL = LLAMA_SMALL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "intermediate_size": 48,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
    "router_jitter_noise": 0.0,
    "sliding_window": None,
}
QWEN3_MOE_SMALL = QWEN3_SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
}
# Norms of all query heads together, and of all key heads.
OLMO2_SMALL = LLAMA_SMALL | {
    "architectures": ["Olmo2ForCausalLM"],
    "model_type": "olmo2",
    "num_hidden_layers": 2,
    "pad_token_id": None,
}
OLMOE_SMALL = OLMO2_SMALL | {
    "architectures": ["OlmoeForCausalLM"],
    "model_type": "olmoe",
    "clip_qkv": None,
    "intermediate_size": 24,
    "norm_topk_prob": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
}
# The first layer has no experts; heads whose key, value and turning part have
# sizes of their own; groups of experts, of which a token uses some; frequencies
# that are kept, interpolated and divided, with a factor of scores and one of
# cosines.
DEEPSEEK_V3_SMALL = LLAMA_SMALL | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "intermediate_size": 96,
    "kv_lora_rank": 16,
    "moe_intermediate_size": 24,
    "n_group": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "rope_interleave": True,
    "rope_scaling": {
        "beta_fast": 8,
        "beta_slow": 0.5,
        "factor": 8.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "original_max_position_embeddings": 64,
        "type": "yarn",
    },
    "rope_theta": 100.0,
    "routed_scaling_factor": 2.5,
    "topk_group": 2,
    "v_head_dim": 10,
}
# All layers but the first have experts, chosen among all of them by softmax.
DEEPSEEK_V2_SMALL = DEEPSEEK_V3_SMALL | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "n_group": 1,
    "norm_topk_prob": False,
    "q_lora_rank": None,
    "routed_scaling_factor": 1.5,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
}
del DEEPSEEK_V2_SMALL["rope_interleave"]
# A shared expert that a sigmoid opens.
QWEN2_MOE_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 24,
    "norm_topk_prob": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 2,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
    "shared_expert_intermediate_size": 40,
}
YARN_SMALL = QWEN2_SMALL | {
    "num_hidden_layers": 2,
    "rope_scaling": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "type": "yarn",
    },
    "rope_theta": 100.0,
}
# Sinks and biases everywhere, windows of every other layer, experts whose gate
# and up take turns and are often bounded, frequencies between pairs.
GPT_OSS_SMALL = LLAMA_SMALL | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 16,
    "intermediate_size": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_experts_per_tok": 3,
    "num_local_experts": 8,
    "output_router_logits": False,
    "rope_scaling": {
        "beta_fast": 8.0,
        "beta_slow": 0.5,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 100.0,
    "router_aux_loss_coef": 0.0,
    "sliding_window": 9,
    "swiglu_limit": 0.75,
}
# One head of keys and values for all, norms whose weights begin at 0, scaled
# embeddings.
GEMMA_SMALL = LLAMA_SMALL | {
    "architectures": ["GemmaForCausalLM"],
    "model_type": "gemma",
    "head_dim": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "pad_token_id": None,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}
# Norms on both sides, windows of every other layer, scores and logits beyond
# their caps.
GEMMA2_SMALL = GEMMA_SMALL | {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 5.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 24,
    "sliding_window": 9,
}
# Two of three layers have a window and frequencies of their own; norms of heads.
GEMMA3_SMALL = GEMMA_SMALL | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 6,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 24,
    "rope_local_base_freq": 100.0,
    "rope_scaling": {"factor": 4.0, "rope_type": "linear"},
    "rope_theta": 1000.0,
    "sliding_window": 9,
    "sliding_window_pattern": 3,
}
GRANITE_SMALL = LLAMA_SMALL | {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "logits_scaling": 1.5,
    "num_hidden_layers": 2,
    "residual_multiplier": 0.4,
    "tie_word_embeddings": True,
}
# The last of four layers knows no positions.
SMOLLM3_SMALL = LLAMA_SMALL | {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0],
    "pad_token_id": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
# Windows of three of four layers, scaled frequencies of the others.
OLMO3_SMALL = OLMO2_SMALL | {
    "architectures": ["Olmo3ForCausalLM"],
    "model_type": "olmo3",
    "num_hidden_layers": 4,
    "rope_parameters": {
        "full_attention": {
            "attention_factor": 1.2,
            "beta_fast": 8.0,
            "beta_slow": 0.5,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 100.0,
            "rope_type": "yarn",
        },
        "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
    },
    "sliding_window": 9,
}
for field in ("rope_scaling", "rope_theta"):
    del OLMO3_SMALL[field]
for config in (
    DEEPSEEK_V2_SMALL,
    DEEPSEEK_V3_SMALL,
    GEMMA_SMALL,
    GEMMA2_SMALL,
    GEMMA3_SMALL,
    GPT_OSS_SMALL,
    OLMO2_SMALL,
    OLMO3_SMALL,
    OLMOE_SMALL,
    MISTRAL_SMALL,
    QWEN2_SMALL,
    YARN_SMALL,
    QWEN3_SMALL,
    PHI3_SMALL,
    MIXTRAL_SMALL,
    QWEN2_MOE_SMALL,
    QWEN3_MOE_SMALL,
):
    del config["mlp_bias"]
for config in (
    MISTRAL_SMALL,
    QWEN2_SMALL,
    YARN_SMALL,
    MIXTRAL_SMALL,
    QWEN2_MOE_SMALL,
):
    del config["attention_bias"]

# A quarter of each head turns; attention and MLP read the same input through norms
# of their own.
NEOX_SMALL = {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classifier_dropout": 0.1,
    "eos_token_id": 0,
    "hidden_act": "gelu",
    "hidden_dropout": 0.0,
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rope_scaling": None,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "vocab_size": 320,
}
# The same input through one norm; biases of everything, logits included.
PHI_SMALL = {
    "architectures": ["PhiForCausalLM"],
    "model_type": "phi",
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embd_pdrop": 0.0,
    "eos_token_id": 2,
    "hidden_act": "gelu_new",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
    "resid_pdrop": 0.0,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 320,
}
STARCODER2_SMALL = {
    "architectures": ["Starcoder2ForCausalLM"],
    "model_type": "starcoder2",
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "embedding_dropout": 0.0,
    "eos_token_id": 0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "max_position_embeddings": 128,
    "norm_epsilon": 1e-05,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "residual_dropout": 0.0,
    "rope_theta": 100000.0,
    "sliding_window": 9,
    "tie_word_embeddings": True,
    "use_bias": True,
    "vocab_size": 320,
}
STABLELM_SMALL = {
    key: value for key, value in LLAMA_SMALL.items() if "bias" not in key
} | {
    "architectures": ["StableLmForCausalLM"],
    "model_type": "stablelm",
    "hidden_dropout": 0.0,
    "layer_norm_eps": 1e-05,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "partial_rotary_factor": 0.25,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "use_qkv_bias": True,
}
del STABLELM_SMALL["rms_norm_eps"]
# Neighbours turn together; norms without biases; one norm for attention and MLP.
COHERE_SMALL = {
    "architectures": ["CohereForCausalLM"],
    "model_type": "cohere",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 5,
    "eos_token_id": 6,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "max_position_embeddings": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "pad_token_id": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "use_qk_norm": False,
    "vocab_size": 320,
}
# Each head of Command R+ and Stable LM 2 12B has a norm of its own; the latter's
# attention and MLP read the same.
COHERE_PLUS_SMALL = COHERE_SMALL | {"use_qk_norm": True}
STABLELM2_SMALL = STABLELM_SMALL | {
    "num_key_value_heads": 2,
    "qk_layernorm": True,
    "use_parallel_residual": True,
    "use_qkv_bias": False,
}
# Norms without weights.
OLMO_SMALL = {
    "architectures": ["OlmoForCausalLM"],
    "model_type": "olmo",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "clip_qkv": None,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 320,
}
# Half of each head turns, neighbours together; gate and up are one tensor; norms on
# both sides.
GLM4_SMALL = {
    "architectures": ["Glm4ForCausalLM"],
    "model_type": "glm4",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": [2],
    "head_dim": 24,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 320,
}
GLM_SMALL = GLM4_SMALL | {"architectures": ["GlmForCausalLM"], "model_type": "glm"}
