#===- compile_errors.py - Bad models and options ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What errors.py gives plaitc: configurations, options, clusters and pins."""

from refusals import LLAMA, Compiler


def config_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    refuse("model-type", ["model_type", "bert"], {"model_type": "bert"})
    refuse("config-without-layers", ["n_layer"], {"n_layer": None})
    refuse("config-wrong-kind", ["n_layer"], {"n_layer": "four"})
    refuse("config-negative", ["n_embd", "-64"], {"n_embd": -64})
    refuse("heads-do-not-divide", ["n_head", "64", "5"], {"n_head": 5})
    refuse(
        "activation",
        ["activation_function", "relu6"],
        {"activation_function": "relu6"},
    )
    refuse(
        "attention-scaling",
        ["scale_attn_by_inverse_layer_idx"],
        {"scale_attn_by_inverse_layer_idx": True},
    )
    refuse(
        "rope-scaling",
        ["rope_scaling", "dynamic"],
        {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
        source=LLAMA,
    )
    refuse("hidden-act", ["hidden_act", "tanh"], {"hidden_act": "tanh"}, LLAMA)
    compiler.refuse_file("config-missing", ["config.json"], None)
    compiler.refuse_file("config-truncated", ["config.json"], '{"model_type')
    compiler.refuse_file("config-a-list", ["config.json"], "[1, 2]")
    compiler.refuse_file("config-empty", ["model_type"], "{}")


def option_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    refuse("sequence-too-long", ["n_positions", "64", "65"], seq=65)
    refuse("tp-kv-heads", ["tp", "8", r"1, 2|1,2|4"], source=LLAMA, mesh="tp=8")
    refuse("tp-three", ["tp", "3"], source=LLAMA, mesh="tp=3")
    refuse("pp-too-large", ["pp", "64", "most|largest"], mesh="pp=64")
    refuse("batch-over-dp", ["10", "dp|micro"], global_batch=10, mesh="dp=4")
    refuse("batch-over-micro", ["micro", "3"], micro_batch=3)
    refuse("batch-zero", ["batch", "0"], global_batch=0)
    refuse("micro-batch-negative", ["micro-batch"], micro_batch=-1)
    refuse("zero-4", ["zero is \"4\", expected 0 to 3"], zero=4, mesh="dp=2")
    refuse("pieces", ["tp-comm-overlap is \"65\", expected 1 to 64"], tp_comm_overlap=65)
    refuse("mesh-zero", ["pp", "0"], mesh="pp=0")
    refuse("mesh-axis", ["xx"], mesh="xx=2")
    refuse("mesh-twice", ["tp"], mesh="tp=2,tp=2")
    refuse("mesh-text", ["mesh"], mesh="tp")
    refuse("schedule", ["zigzag"], schedule="zigzag")
    refuse("recompute", ["some"], recompute="some")
    refuse("recompute-auto", ["auto", "--cluster"], recompute="auto")
    refuse(
        "recompute-order",
        ["where it cannot stand, expected full:N before selective:N before none"],
        recompute="selective:1+full:1",
    )
    refuse("dump-under-file", ["cannot create config.json/x: "], dump_phases_to="config.json/x")
    refuse("recompute-stages", ["2 virtual stages", "has 1"], recompute="full/none")
    refuse("phase", ["nowhere"], compile_to="nowhere")
    refuse("output-folder-missing", ["absent"], o="absent/out.plan")
    refuse("output-is-folder", ["/tmp"], o="/tmp")
    refuse("precision-alone", ["int8", "bf16"], precision="int8")
    refuse("attention", ["sparse", "flash"], attention="sparse")
    refuse("attention-of-gpu", ["f32", "bf16"], backend="cuda", attention="flash")
    refuse("shard-form", [r"error: .*--shard wte is not NAME=AXES"], shard="wte")
    refuse("shard-text", [r"--shard \*=\[\{\"tp\"\}: "], shard='*=[{"tp"}')
    refuse("empty-value", ["error: --mesh is empty"], mesh="")
    refuse("leading-zero", ["--global-batch is '010'"], global_batch="010")
    same = "--output and model are the same file, 'config.json'"
    refuse("output-over-model", [same], o="config.json")


def planner_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    cpu = {"cluster": "cpu:4"}
    refuse("cluster-unknown", ["h999", "h100"], cluster="h999:2x8")
    refuse("cluster-empty", ["h100:0x8", "nodes"], cluster="h100:0x8")
    refuse("cluster-file", ["no.json"], cluster="no.json")
    refuse("pin-mesh", ["tp 3", "4 ranks"], **cpu, mesh="tp=3")
    refuse("pin-unknown", ["sixteen"], **cpu, pin="sixteen=1")
    refuse("pin-range", ["zero", "9", "0 to 3"], **cpu, pin="zero=9")
    refuse("pin-twice", ["pp"], **cpu, pin="pp=2")
    refuse("pin-sharding", ["c_fc.weight"], **cpu, shard="*.c_fc.weight=[{}]")
    refuse("pin-layers", ["3", "2"], **cpu, mesh="pp=2", layers="1,2,1")
    refuse("precision", ["int8", "bf16"], **cpu, precision="int8")
    refuse("precision-of-plan", ["fp16", "bf16"], **cpu, precision="fp16")
    refuse("reduce-precision", ["reduce-precision", "int8", "bf16"], reduce_precision="int8")
    refuse("reduce-precision-of-plan", ["reduce-precision", "fp16", "bf16"],
           reduce_precision="fp16")
    refuse("compress", ["compress", "int2", "none, int8, int4, sign, topk, qsgd8, qsgd4, qsgd2, randk, ef21-topk, onebit-adam or powersgd"],
           compress="int2")
    refuse("compress-momentum", ["compress is onebit-adam", "optimizer adamw, not lion"],
           compress="onebit-adam", optimizer="lion")
    refuse("compress-momentum-zero", ["all of the momentum", "zero 0, not 1"], **cpu,
           compress="onebit-adam", pin="zero=1")
    refuse("compress-momentum-offload", ["onebit-adam", "no offload of the optimizer"],
           compress="onebit-adam", offload="optimizer")
    refuse("compress-block", ["chunks of 96", "power of two"], compress="int8:96")
    refuse("compress-keep", ["compress has keep", '"0"', "1 to 4096"], compress="topk+keep:0")
    refuse("compress-kept", ["compress has keep", '"33"', "1 to 32"],
           compress="topk:32+keep:33")
    refuse("compress-zero", ["compress is int8", "zero 0 or 1, not 2", "errors of blocks"],
           compress="int8", zero=2)
    refuse("compress-matrices", ["compress is int8", "zero 0 with an optimizer of whole matrices, not 1"],
           compress="int8", zero=1, optimizer="muon")
    refuse("compress-group", ["h.0.mlp.c_fc.weight", "whole matrices, not 1"],
           compress="powersgd:2", zero=1, optimizer_of="*.c_fc.weight=muon")
    refuse("compress-zero-3", ["compress is int4", "zero 0 or 1, not 3", "errors of blocks"],
           compress="int4", zero=3)
    refuse("compress-zero-factors", ["powersgd.feedback", "zero 0 or 1, not 2"], zero=2,
           compress="powersgd+feedback")
    refuse("compress-both", ["int8.both", "these are weights", "zero 0"], compress="int8+both",
           zero=1)
    refuse("compress-factors", ['"both"', "feedback or replicas:N"], compress="powersgd+both")
    refuse("compress-twice", ["feedback", "each once"], compress="int8+feedback+feedback")
    refuse("compress-rounded", ["compress is int8", "takes reduce-precision fp32, not bf16"],
           compress="int8", reduce_precision="bf16", cluster="cpu:4")
    refuse("compress-pinned", ["compress is int8", "takes zero 0 or 1, not 2"], **cpu,
           compress="int8", pin="zero=2")
    refuse("compress-tensor", ["tp 4: .*wte.weight: .* uneven parts", "int8:4096"], **cpu,
           compress="int8:4096", mesh="tp=4")
    refuse("compress-split", ["wte.weight", "runs of 32", "blocks of 256", "int8:32"],
           compress="int8", mesh="tp=2")
    refuse("framework", ["jax", "plait"], **cpu, framework="jax")
    refuse("why-not", ["tp"], **cpu, why_not="tp=0")
    refuse("report", ["absent"], **cpu, report="absent/plan.html")
    refuse("planner-alone", ["--pin", "--cluster"], pin="zero=1", backend="cuda")
    refuse("cluster-without-name", ["--cluster is empty"], cluster="")
    same = "--output and --json are the same file, 'out.plan'"
    refuse("two-outputs", [same], **cpu, json="./out.plan")


def check(compiler: Compiler) -> None:
    for cases in (config_cases, option_cases, planner_cases):
        cases(compiler)
