// Floats of positions and of sequences: planned for other sizes, in both precisions,
// divided along batch and sequence, also in zigzag order, and read in every stage.
// RUN: rm -rf %t && mkdir %t
// RUN: plaitc %s --cluster h100:2x8 --global-batch 64 --seq 256 -o %t/large.plan
// RUN: plaitc %s --mesh dp=2,cp=2 --no-plan --context-parallel zigzag --global-batch 8 \
// RUN:   --micro-batch 2 --seq 16 -o %t/zigzag.plan
// RUN: plait-run %t/zigzag.plan --check | FileCheck %s --check-prefix=CHECK
// RUN: plaitc %s --mesh pp=2,tp=2 --no-plan --schedule zb-h1 --global-batch 8 --micro-batch 2 \
// RUN:   --seq 12 --recompute full --precision bf16 -o %t/bf16.plan
// RUN: plait-run %t/bf16.plan --check | FileCheck %s --check-prefix=CHECK
// RUN: plaitc %s --mesh dp=3,tp=2 --no-plan --zero 3 --global-batch 6 --seq 7 -o %t/odd.plan
// RUN: plait-run %t/odd.plan --check | FileCheck %s --check-prefix=CHECK
// CHECK: 0 of {{[0-9]+}} gradients differ by more than {{.*}}: passed

// Each stage is given what it reads. A dump compiles on, unless its description of the
// inputs is another one.
// RUN: plaitc %s --mesh pp=2 --no-plan --global-batch 4 --micro-batch 2 --no-reference \
// RUN:   --dump-phases-to %t/dump -o %t/a.plan
// RUN: FileCheck %s --check-prefix=STAGE --input-file=%t/dump/2-stage.mlir
// STAGE: inputs = [{name = "x", of = "positions", shape = array<i64: 12>}, {name = "y", of = "positions", shape = array<i64: 8>}, {name = "t", of = "sequences", shape = array<i64>}]
// STAGE: func.func @forward_0({{.*}}#pipe.port<tokens>{{.*}}#pipe.port<features 0>{{.*}}#pipe.port<context 2>
// STAGE: func.func @forward_1({{.*}}#pipe.port<targets>{{.*}}#pipe.port<features 1>
// RUN: plaitc %t/dump/7-lower.mlir --claim %t/dump/0-import.mlir --no-reference \
// RUN:   -o %t/b.plan
// RUN: plait-plan diff %t/a.plan %t/b.plan
// RUN: plait-plan show %t/a.plan | FileCheck %s --check-prefix=SHOW
// SHOW: floats x [8, 12] y [8, 8] t [], rows of 680 bytes
// RUN: sed 's/shape = array<i64: 12>/shape = array<i64: 6>/' %t/dump/7-lower.mlir \
// RUN:   > %t/shape.mlir
// RUN: not plaitc %t/shape.mlir --no-reference -o %t/c.plan 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SHAPE
// SHAPE: error: {{.*}}input is 2 x 2 x {{[0-9]+}} on each of 1 ranks, the plan feeds 2 x 2 x {{[0-9]+}}
// RUN: sed 's/of = "sequences"/of = "layers"/' %t/dump/7-lower.mlir > %t/of.mlir
// RUN: not plaitc %t/of.mlir --no-reference -o %t/c.plan 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OF
// OF: error: {{.*}}has plait.model with inputs = {{.*}}, expected at most 16 of {name = "NAME", of = "positions"

module attributes {plait.model = {layers = 2 : i64, model_type = "reg", name = "reg", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @inp : tensor<12x8xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @time : tensor<8xf32> init<mean = 0.0, std = 0.1> decay
  nn.parameter @up.0 : tensor<8x16xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @down.0 : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @up.1 : tensor<8x16xf32> init<mean = 0.0, std = 0.3> decay
  nn.parameter @down.1 : tensor<16x8xf32> init<mean = 0.0, std = 0.3> decay
  func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %x: tensor<2x8x12xf32> {nn.features = "x"}, %y: tensor<2x8x8xf32> {nn.features = "y"}, %t: tensor<2xf32> {nn.context = "t"}) -> (tensor<f32>, tensor<f32>) {
    %table = nn.read @embed value : tensor<16x8xf32>
    %e = nn.embedding %table, %tokens : (tensor<16x8xf32>, tensor<2x8xi32>) -> tensor<2x8x8xf32>
    %w = nn.read @inp value : tensor<12x8xf32>
    %tw = nn.read @time value : tensor<8xf32>
    %a = nn.matmul %x, %w "bsf,fh->bsh" : (tensor<2x8x12xf32>, tensor<12x8xf32>) -> tensor<2x8x8xf32>
    %b = nn.matmul %t, %tw "b,h->bh" : (tensor<2xf32>, tensor<8xf32>) -> tensor<2x8xf32>
    %br = nn.broadcast %b dims [0, 2] : tensor<2x8xf32> -> tensor<2x8x8xf32>
    %s = nn.add %a, %br : tensor<2x8x8xf32>
    %x0 = nn.add %s, %e : tensor<2x8x8xf32>
    %up0 = nn.read @up.0 value {nn.layer = 0} : tensor<8x16xf32>
    %down0 = nn.read @down.0 value {nn.layer = 0} : tensor<16x8xf32>
    %a0 = nn.matmul %x0, %up0 "bsh,hf->bsf" {nn.layer = 0} : (tensor<2x8x8xf32>, tensor<8x16xf32>) -> tensor<2x8x16xf32>
    %g0 = nn.silu %a0 {nn.layer = 0} : tensor<2x8x16xf32>
    %m0 = nn.matmul %g0, %down0 "bsf,fh->bsh" {nn.layer = 0} : (tensor<2x8x16xf32>, tensor<16x8xf32>) -> tensor<2x8x8xf32>
    %x1 = nn.add %x0, %m0 {nn.layer = 0} : tensor<2x8x8xf32>
    %up1 = nn.read @up.1 value {nn.layer = 1} : tensor<8x16xf32>
    %down1 = nn.read @down.1 value {nn.layer = 1} : tensor<16x8xf32>
    %a1 = nn.matmul %x1, %up1 "bsh,hf->bsf" {nn.layer = 1} : (tensor<2x8x8xf32>, tensor<8x16xf32>) -> tensor<2x8x16xf32>
    %g1 = nn.silu %a1 {nn.layer = 1} : tensor<2x8x16xf32>
    %m1 = nn.matmul %g1, %down1 "bsf,fh->bsh" {nn.layer = 1} : (tensor<2x8x16xf32>, tensor<16x8xf32>) -> tensor<2x8x8xf32>
    %x2 = nn.add %x1, %m1 {nn.layer = 1} : tensor<2x8x8xf32>
    %d = nn.sub %x2, %y : tensor<2x8x8xf32>
    %q = nn.mul %d, %d : tensor<2x8x8xf32>
    %total = nn.reduce sum %q dims [0, 1, 2] : tensor<2x8x8xf32> -> tensor<f32>
    %valid = nn.valid %targets ignore -100 : tensor<2x8xi32> -> tensor<2x8xf32>
    %count = nn.reduce sum %valid dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
    return %total, %count : tensor<f32>, tensor<f32>
  }
}
