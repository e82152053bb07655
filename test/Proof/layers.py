#===- layers.py - A model of residual MLP layers, of which one is odd ----*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Prints the model. Each option names layers by number:

layers.py LAYERS [--wide I] [--tanh I] [--tied I J]   J reads the parameters of I

--alternate: each odd layer has tanh."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("layers", type=int)
parser.add_argument("--wide", type=int, default=-1)
parser.add_argument("--tanh", type=int, default=-1)
parser.add_argument("--tied", type=int, nargs=2, default=(-1, -1))
parser.add_argument("--alternate", action="store_true")
options = parser.parse_args()

X, LOGITS = "tensor<4x32x64xf32>", "tensor<4x32x256xf32>"
layers = range(options.layers)
width = {i: 192 if i == options.wide else 128 for i in layers}
holder = {i: options.tied[0] if i == options.tied[1] else i for i in layers}

print(f"module attributes {{plait.model = {{layers = {options.layers} : i64, "
      'model_type = "mlp", name = "mlp", vocab = 256 : i64}} {')
print("nn.parameter @embed : tensor<256x64xf32> init<mean = 0.0, std = 0.02> decay")
for i in layers:
    if holder[i] == i:
        print(f"nn.parameter @up.{i} : tensor<64x{width[i]}xf32> init<mean = 0.0, std = 0.1> decay")
        print(f"nn.parameter @down.{i} : tensor<{width[i]}x64xf32> init<mean = 0.0, std = 0.1> decay")
print("func.func @loss(%tokens: tensor<4x32xi32>, %targets: tensor<4x32xi32>)"
      " -> (tensor<f32>, tensor<f32>) {")
print("%table = nn.read @embed value : tensor<256x64xf32>")
print(f"%x0 = nn.embedding %table, %tokens : (tensor<256x64xf32>, tensor<4x32xi32>) -> {X}")
for i in layers:
    layer = f"{{nn.layer = {i}}}"
    up, down = f"tensor<64x{width[i]}xf32>", f"tensor<{width[i]}x64xf32>"
    inner = f"tensor<4x32x{width[i]}xf32>"
    act = "tanh" if i == options.tanh or options.alternate and i % 2 else "silu"
    print(f"%up{i} = nn.read @up.{holder[i]} value {layer} : {up}")
    print(f"%down{i} = nn.read @down.{holder[i]} value {layer} : {down}")
    print(f'%a{i} = nn.matmul %x{i}, %up{i} "bsh,hf->bsf" {layer} : ({X}, {up}) -> {inner}')
    print(f"%g{i} = nn.{act} %a{i} {layer} : {inner}")
    print(f'%m{i} = nn.matmul %g{i}, %down{i} "bsf,fh->bsh" {layer} : ({inner}, {down}) -> {X}')
    print(f"%x{i + 1} = nn.add %x{i}, %m{i} {layer} : {X}")
print(f'%logits = nn.matmul %x{options.layers}, %table "bsh,vh->bsv" : ({X}, tensor<256x64xf32>) -> {LOGITS}')
print(f"%sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 :"
      f" ({LOGITS}, tensor<4x32xi32>) -> (tensor<f32>, tensor<f32>)")
print("return %sum, %count : tensor<f32>, tensor<f32>\n}\n}")
