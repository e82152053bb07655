// RUN: plait-opt %s --verify-roundtrip | FileCheck %s
// RUN: plait-opt %s --mlir-print-op-generic | plait-opt | FileCheck %s

dist.mesh @mesh ["dp", "tp"] = [2, 4]

// CHECK: nn.parameter @w : tensor<4x6xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay file<name = "w.weight", shape = [4, 6], begin = [0, 0], box = [4, 6]>
nn.parameter @w : tensor<4x6xf32> init <mean = 0.0, std = 0.02> decay
  file <name = "w.weight", shape = [4, 6], begin = [0, 0], box = [4, 6]>
// CHECK: nn.parameter @pinned : tensor<8xf32> init<mean = 1.000000e+00 : f64, std = 0.000000e+00 : f64> sharding #dist.sharding<@mesh, [{"tp"}]>
nn.parameter @pinned : tensor<8xf32> init <mean = 1.0, std = 0.0>
  sharding #dist.sharding<@mesh, [{"tp"}]>
// CHECK: nn.parameter @view : tensor<3x2xf32> {{.*}} file<name = "h.0.attn.c_attn.bias", shape = [18], begin = [6], box = [6]>
nn.parameter @view : tensor<3x2xf32> init <mean = 0.0, std = 0.0>
  file <name = "h.0.attn.c_attn.bias", shape = [18], begin = [6], box = [6]>
// CHECK: nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @loss_sum : tensor<f32>
// Of @pinned a rank has two elements.
// CHECK: nn.pack @pack rank 1 [@w, @pinned] at [0, 32] : tensor<2x32xf32>
nn.pack @pack rank 1 [@w, @pinned] at [0, 32] : tensor<2x32xf32>
// CHECK: nn.pack @divided rank 2 [@w] at [0] divided on @mesh["dp"] : tensor<4x8xf32>
nn.pack @divided rank 2 [@w] at [0] divided on @mesh["dp"] : tensor<4x8xf32>
// CHECK: nn.pack @further rank 4 [@w] at [0] divided on @mesh["tp", "dp"] : tensor<8x8xf32>
nn.pack @further rank 4 [@w] at [0] divided on @mesh["tp", "dp"] : tensor<8x8xf32>
// CHECK: nn.pack @sums rank 5 [@w] at [0] divided on @mesh["dp"] sums : tensor<4x8xf32>
nn.pack @sums rank 5 [@w] at [0] divided on @mesh["dp"] sums : tensor<4x8xf32>
// CHECK: nn.pack @blocks rank 6 [@w] at [0] divided on @mesh["dp"] blocks : tensor<4x8xf32>
nn.pack @blocks rank 6 [@w] at [0] divided on @mesh["dp"] blocks : tensor<4x8xf32>
// CHECK: nn.pack @master rank 3 [@w] at [0] divided on @mesh["dp"] master : tensor<4x8xf32>
nn.pack @master rank 3 [@w] at [0] divided on @mesh["dp"] master : tensor<4x8xf32>

// CHECK-LABEL: func @state
func.func @state(%loss: tensor<f32>, %block: tensor<2xbf16>) {
  // CHECK: %[[W:.*]] = nn.read @w value : tensor<4x6xf32>
  %w = nn.read @w value : tensor<4x6xf32>
  // CHECK: nn.read @w moment1 : tensor<4x6xf32, #dist.sharding<@mesh, [{"tp"}, {}]>>
  %m = nn.read @w moment1 : tensor<4x6xf32, #dist.sharding<@mesh, [{"tp"}, {}]>>
  // CHECK: nn.write %[[W]] to @w value : tensor<4x6xf32>
  nn.write %w to @w value : tensor<4x6xf32>
  // CHECK: nn.write %{{.*}} to @pinned compute : tensor<2xbf16>
  nn.write %block to @pinned compute : tensor<2xbf16>
  // CHECK: %[[P:.*]] = nn.read @pack compute : tensor<2x32xbf16>
  %p = nn.read @pack compute : tensor<2x32xbf16>
  // CHECK: nn.write %[[P]] to @pack compute : tensor<2x32xbf16>
  nn.write %p to @pack compute : tensor<2x32xbf16>
  // Of what is divided, a rank's rows.
  // CHECK: %[[R:.*]] = nn.read @divided reduced : tensor<2x8xf32>
  %r = nn.read @divided reduced : tensor<2x8xf32>
  // CHECK: nn.write %[[R]] to @divided moment2 : tensor<2x8xf32>
  nn.write %r to @divided moment2 : tensor<2x8xf32>
  // CHECK: nn.write %[[R]] to @master value : tensor<2x8xf32>
  nn.write %r to @master value : tensor<2x8xf32>
  // CHECK: nn.read @divided gradient : tensor<4x8xf32>
  %g = nn.read @divided gradient : tensor<4x8xf32>
  // CHECK: nn.read @divided value : tensor<4x8xf32>
  %v = nn.read @divided value : tensor<4x8xf32>
  // CHECK: nn.read @master compute : tensor<4x8xbf16>
  %c = nn.read @master compute : tensor<4x8xbf16>
  // CHECK: nn.accumulate %[[W]] to @w gradient : tensor<4x6xf32>
  nn.accumulate %w to @w gradient : tensor<4x6xf32>
  // CHECK: nn.accumulate %{{.*}} to @loss_sum value : tensor<f32>
  nn.accumulate %loss to @loss_sum value : tensor<f32>
  // CHECK: nn.step_scalar "LearningRate" : tensor<f32>
  %lr = nn.step_scalar "LearningRate" : tensor<f32>
  // CHECK: nn.metric %{{.*}} "Loss" : tensor<f32>
  nn.metric %loss "Loss" : tensor<f32>
  return
}

// CHECK-LABEL: func @mixed
func.func @mixed(%x: tensor<2x8x4xbf16>, %ids: tensor<2x8xi32>) {
  // CHECK: %[[W:.*]] = nn.read @w compute : tensor<4x6xbf16>
  %w = nn.read @w compute : tensor<4x6xbf16>
  // CHECK: nn.matmul %{{.*}}, %[[W]] "bsh,hf->bsf" : (tensor<2x8x4xbf16>, tensor<4x6xbf16>) -> tensor<2x8x6xbf16>
  %0 = nn.matmul %x, %w "bsh,hf->bsf" : (tensor<2x8x4xbf16>, tensor<4x6xbf16>) -> tensor<2x8x6xbf16>
  // CHECK: nn.matmul %{{.*}} "bsh,bsf->hf" : (tensor<2x8x4xbf16>, tensor<2x8x6xbf16>) -> tensor<4x6xf32>
  %1 = nn.matmul %x, %0 "bsh,bsf->hf" : (tensor<2x8x4xbf16>, tensor<2x8x6xbf16>) -> tensor<4x6xf32>
  // CHECK: nn.embedding_grad %{{.*}} : (tensor<2x8x4xbf16>, tensor<2x8xi32>) -> tensor<16x4xf32>
  %2 = nn.embedding_grad %x, %ids : (tensor<2x8x4xbf16>, tensor<2x8xi32>) -> tensor<16x4xf32>
  // CHECK: nn.cast %{{.*}} : tensor<2x8x4xbf16> -> tensor<2x8x4xf32>
  %3 = nn.cast %x : tensor<2x8x4xbf16> -> tensor<2x8x4xf32>
  return
}

// CHECK-LABEL: func @epilogues
func.func @epilogues(%x: tensor<2x8x4xf32>, %w: tensor<4x6xf32>, %b: tensor<6xf32>) {
  // CHECK: %{{.*}} = nn.fused_matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" bias %{{[^ ]*}} : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> tensor<2x8x6xf32>
  %0 = nn.fused_matmul %x, %w "bsh,hf->bsf" bias %b : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> tensor<2x8x6xf32>
  // CHECK: %{{.*}} = nn.fused_matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" gelu : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x8x6xf32>
  %1 = nn.fused_matmul %x, %w "bsh,hf->bsf" gelu : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x8x6xf32>
  // CHECK: %{{.*}}, %[[PRE:.*]] = nn.fused_matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" bias %{{.*}} gelu : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<2x8x6xf32>)
  %2:2 = nn.fused_matmul %x, %w "bsh,hf->bsf" bias %b gelu : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<2x8x6xf32>)
  // CHECK: nn.fused_matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" gelu_grad %[[PRE]] : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  %3 = nn.fused_matmul %x, %w "bsh,hf->bsf" gelu_grad %2#1 : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  // CHECK: nn.fused_matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" add %{{[^ ]*}} : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  %4 = nn.fused_matmul %x, %w "bsh,hf->bsf" add %3 : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<2x8x6xf32>) -> tensor<2x8x6xf32>
  return
}

// CHECK-LABEL: func @model
func.func @model(%x: tensor<2x8x4xf32>, %w: tensor<4x6xf32>,
                 %table: tensor<16x4xf32>, %ids: tensor<2x8xi32>,
                 %scale: tensor<4xf32>, %logits: tensor<2x8x16xf32>) {
  // CHECK: nn.matmul %{{.*}}, %{{.*}} "bsh,hf->bsf" : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x8x6xf32>
  %0 = nn.matmul %x, %w "bsh,hf->bsf" : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x8x6xf32>
  // CHECK: nn.embedding %{{.*}}, %{{.*}} : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %1 = nn.embedding %table, %ids : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  // CHECK: nn.embedding %{{.*}} {begin = #nn.begin<"dp" * 32, "tp" * 16>, limit = 60 : i64}
  %2 = nn.embedding %table, %ids {begin = #nn.begin<"dp" * 32, "tp" * 16>, limit = 60 : i64} : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}} : (tensor<2x8x4xf32>, tensor<2x8xi32>) -> tensor<16x4xf32>
  %3 = nn.embedding_grad %x, %ids : (tensor<2x8x4xf32>, tensor<2x8xi32>) -> tensor<16x4xf32>
  // CHECK: nn.layer_norm %{{.*}}, %{{.*}}, %{{.*}} epsilon 9.99999974E-6 : (
  %4:3 = nn.layer_norm %x, %scale, %scale epsilon 1.0e-05 : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  // CHECK: nn.rms_norm %{{.*}}, %{{.*}} epsilon 9.99999974E-6 : (
  %5:2 = nn.rms_norm %x, %scale epsilon 1.0e-05 : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>)
  // CHECK: nn.rope %{{.*}} theta 1.000000e+04 : tensor<2x8x4xf32>
  %6 = nn.rope %x theta 1.0e+04 : tensor<2x8x4xf32>
  // CHECK: nn.rope %{{.*}} theta 5.000000e+05 scaling <factor = 8.000000e+00 : f64, low = 1.000000e+00 : f64, high = 4.000000e+00 : f64, original = 8192> inverse : tensor<2x8x4xf32>
  %7 = nn.rope %x theta 5.0e+05 scaling <factor = 8.0, low = 1.0, high = 4.0, original = 8192> inverse : tensor<2x8x4xf32>
  // CHECK: nn.rope %{{.*}} theta 1.000000e+04 yarn <factor = 8.000000e+00 : f64, first = 0.000000e+00 : f64, last = 3.000000e+00 : f64, amplitude = 1.250000e+00 : f64> rotated 2 : tensor<2x8x4xf32>
  %yarn = nn.rope %x theta 1.0e+04 yarn <factor = 8.0, first = 0.0, last = 3.0, amplitude = 1.25> rotated 2 : tensor<2x8x4xf32>
  // CHECK: nn.gelu %{{.*}} tanh : tensor<2x8x4xf32>
  %8 = nn.gelu %x tanh : tensor<2x8x4xf32>
  // CHECK: nn.gelu_grad %{{.*}}, %{{.*}} tanh : tensor<2x8x4xf32>
  %gelu_grad = nn.gelu_grad %x, %8 tanh : tensor<2x8x4xf32>
  // CHECK: nn.gelu_grad %{{.*}}, %{{[^ ]*}} : tensor<2x8x4xf32>
  %exact_grad = nn.gelu_grad %x, %8 : tensor<2x8x4xf32>
  // CHECK: nn.gelu %{{[^ ]*}} : tensor<2x8x4xf32>
  %9 = nn.gelu %x : tensor<2x8x4xf32>
  // CHECK: nn.silu %{{.*}} : tensor<2x8x4xf32>
  %10 = nn.silu %x : tensor<2x8x4xf32>
  // CHECK: nn.softmax_cross_entropy %{{.*}}, %{{.*}} ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  %11:2 = nn.softmax_cross_entropy %logits, %ids ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return
}

// CHECK-LABEL: func @attention
func.func @attention(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>,
                     %v: tensor<2x8x2x4xf32>, %do: tensor<2x8x2x3x4xf32>) {
  // CHECK: %[[OUT:.*]], %[[LSE:.*]] = nn.attention %{{.*}}, %{{.*}}, %{{.*}} scale 5.000000e-01 : (
  %o, %lse = nn.attention %q, %k, %v scale 5.0e-01 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  // CHECK: nn.attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %[[OUT]], %[[LSE]], %{{.*}} scale 5.000000e-01 window 3 : (
  %dq, %dk, %dv = nn.attention_grad %q, %k, %v, %o, %lse, %do scale 5.0e-01 window 3 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// A rank with some of the queries and all keys.
// CHECK-LABEL: func @attention_to_both_sides
func.func @attention_to_both_sides(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %x: tensor<2x8x8xf32>) -> tensor<2x8x8xf32> {
  // CHECK: nn.attention %{{.*}} scale 5.000000e-01 bidirectional : (
  %o, %lse = nn.attention %q, %k, %k scale 0.5 bidirectional : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  // CHECK: nn.attention_grad %{{.*}} scale 5.000000e-01 window 3 bidirectional : (
  %dq, %dk, %dv = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 0.5 window 3 bidirectional : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  // CHECK: nn.causal_mask %{{.*}} window 2 bidirectional : tensor<2x8x8xf32>
  %0 = nn.causal_mask %x window 2 bidirectional : tensor<2x8x8xf32>
  return %0 : tensor<2x8x8xf32>
}

// CHECK-LABEL: func @attention_with_sinks
func.func @attention_with_sinks(%q: tensor<2x8x2x3x4xbf16>, %k: tensor<2x8x2x4xbf16>, %s: tensor<2x3xbf16>) -> tensor<2x3xf32> {
  // CHECK: nn.attention %{{.*}} scale 5.000000e-01 window 3 soft_cap 5.000000e+01 sinks %{{.*}} : (
  %o, %lse = nn.attention %q, %k, %k scale 0.5 window 3 soft_cap 50.0 sinks %s : (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x3xbf16>) -> (tensor<2x8x2x3x4xbf16>, tensor<2x2x3x8xf32>)
  // CHECK: nn.attention_grad %{{.*}} scale 5.000000e-01 window 3 soft_cap 5.000000e+01 sinks %{{.*}} : (
  %dq, %dk, %dv, %ds = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 0.5 window 3 soft_cap 50.0 sinks %s : (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x3x4xbf16>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xbf16>, tensor<2x3xbf16>) -> (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x3xf32>)
  return %ds : tensor<2x3xf32>
}

// CHECK-LABEL: func @attention_of_some_queries
func.func @attention_of_some_queries(%q: tensor<2x4x2x3x4xf32>, %k: tensor<2x8x2x4xf32>,
                                     %v: tensor<2x8x2x4xf32>) {
  // CHECK: nn.attention %{{.*}} scale 5.000000e-01 window 3 {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>,
  %o, %lse = nn.attention %q, %k, %v scale 5.0e-01 window 3 {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>)
  // CHECK: nn.attention_grad {{.*}} scale 5.000000e-01 {begin = #nn.begin<"cp" * 4>} :
  %dq, %dk, %dv = nn.attention_grad %q, %k, %v, %o, %lse, %o scale 5.0e-01 {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x4x2x3x4xf32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  // CHECK: nn.rope %{{.*}} theta 1.000000e+04 {begin = #nn.begin<"cp" * 4 of 7>} : tensor<2x4x2x3x4xf32>
  %r = nn.rope %q theta 1.0e+04 {begin = #nn.begin<"cp" * 4 of 7>} : tensor<2x4x2x3x4xf32>
  return
}

// Several documents in a sequence.
// CHECK-LABEL: func @attention_within_documents
func.func @attention_within_documents(%q: tensor<2x4x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %starts: tensor<2x4xi32>,
                                      %keys: tensor<2xi32>, %x: tensor<2x2x3x4x8xf32>, %rows: tensor<2x2x3x4xi32>) {
  // CHECK: nn.attention %{{.*}} scale 5.000000e-01 window 3 starts %[[STARTS:.*]] dropout %[[KEYS:.*]] probability 1.000000e-01 site 3 {begin = #nn.begin<"cp" * 4>} :
  %o, %lse = nn.attention %q, %k, %k scale 5.0e-01 window 3 starts %starts dropout %keys probability 0.1 site 3 {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x4xi32>, tensor<2xi32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>)
  // CHECK: nn.attention_grad {{.*}} scale 5.000000e-01 starts %[[STARTS]] {begin = #nn.begin<"cp" * 4>} :
  %dq, %dk, %dv = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 5.0e-01 starts %starts {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x4x2x3x4xf32>, tensor<2x4xi32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  // CHECK: nn.broadcast %[[STARTS]] dims [0, 3] : tensor<2x4xi32> -> tensor<2x2x3x4xi32>
  %0 = nn.broadcast %starts dims [0, 3] : tensor<2x4xi32> -> tensor<2x2x3x4xi32>
  // CHECK: nn.causal_mask %{{.*}} window 3 starts %{{.*}} : tensor<2x2x3x4xi32> {begin = #nn.begin<"cp" * 4>} : tensor<2x2x3x4x8xf32>
  %1 = nn.causal_mask %x window 3 starts %0 : tensor<2x2x3x4xi32> {begin = #nn.begin<"cp" * 4>} : tensor<2x2x3x4x8xf32>
  return
}

// CHECK-LABEL: func @experts
func.func @experts(%x: tensor<2x8x4xf32>, %w: tensor<3x6x4xf32>, %logits: tensor<2x8x3xbf16>, %bias: tensor<3xf32>, %many: tensor<2x8x6xf32>) {
  // CHECK: %[[W:.*]], %[[IDS:.*]] = nn.route %{{.*}} choices 2 scores softmax normalized : (tensor<2x8x3xbf16>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  %weights, %ids = nn.route %logits choices 2 scores softmax normalized : (tensor<2x8x3xbf16>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  // CHECK: nn.route %{{.*}} bias %{{.*}} choices 1 scores sigmoid scaled 2.500000e+00 :
  %0, %1 = nn.route %logits bias %bias choices 1 scores sigmoid scaled 2.5 : (tensor<2x8x3xbf16>, tensor<3xf32>) -> (tensor<2x8x1xf32>, tensor<2x8x1xi32>)
  // CHECK: nn.route %{{.*}} choices 3 scores chosen_softmax :
  %2, %3 = nn.route %logits choices 3 scores chosen_softmax : (tensor<2x8x3xbf16>) -> (tensor<2x8x3xf32>, tensor<2x8x3xi32>)
  // CHECK: nn.route %{{.*}} choices 2 scores sigmoid groups 2 of 3 normalized scaled 2.500000e+00 :
  %grouped:2 = nn.route %many choices 2 scores sigmoid groups 2 of 3 normalized scaled 2.5 : (tensor<2x8x6xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  // CHECK: %[[Y:.*]] = nn.grouped_matmul %{{.*}}, %{{.*}}, %[[IDS]] "bsh,efh->bscf" {begin = #nn.begin<"tp" * 3>, limit = 7 : i64} : (tensor<2x8x4xf32>, tensor<3x6x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2x6xf32>
  %y = nn.grouped_matmul %x, %w, %ids "bsh,efh->bscf" {begin = #nn.begin<"tp" * 3>, limit = 7 : i64} : (tensor<2x8x4xf32>, tensor<3x6x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2x6xf32>
  // CHECK: nn.grouped_matmul %{{.*}}, %[[Y]], %[[IDS]] "bsh,bscf->efh" :
  %dw = nn.grouped_matmul %x, %y, %ids "bsh,bscf->efh" : (tensor<2x8x4xf32>, tensor<2x8x2x6xf32>, tensor<2x8x2xi32>) -> tensor<3x6x4xf32>
  return
}

// CHECK-LABEL: func @elementwise
func.func @elementwise(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>) {
  // CHECK: nn.neg %{{.*}} : tensor<2x4xf32>
  %0 = nn.neg %x : tensor<2x4xf32>
  // CHECK: nn.exp
  %1 = nn.exp %x : tensor<2x4xf32>
  // CHECK: nn.log
  %2 = nn.log %x : tensor<2x4xf32>
  // CHECK: nn.sin
  %sin = nn.sin %x : tensor<2x4xf32>
  // CHECK: nn.cos
  %cos = nn.cos %x : tensor<2x4xf32>
  // CHECK: nn.tanh
  %3 = nn.tanh %x : tensor<2x4xf32>
  // CHECK: nn.erf
  %4 = nn.erf %x : tensor<2x4xf32>
  // CHECK: nn.sqrt
  %5 = nn.sqrt %x : tensor<2x4xf32>
  // CHECK: nn.rsqrt
  %6 = nn.rsqrt %x : tensor<2x4xf32>
  // CHECK: nn.sigmoid
  %7 = nn.sigmoid %x : tensor<2x4xf32>
  // CHECK: nn.is_zero
  %8 = nn.is_zero %x : tensor<2x4xf32>
  // CHECK: nn.equal %{{.*}}, %{{.*}} : tensor<2x4xf32> -> tensor<2x4xbf16>
  %equal = nn.equal %x, %y : tensor<2x4xf32> -> tensor<2x4xbf16>
  // CHECK: nn.greater %{{.*}}, %{{.*}} : tensor<2x4xf32> -> tensor<2x4xf32>
  %greater = nn.greater %x, %y : tensor<2x4xf32> -> tensor<2x4xf32>
  // CHECK: nn.convert %{{.*}} : tensor<2x4xf32> -> tensor<2x4xi32>
  %whole = nn.convert %x : tensor<2x4xf32> -> tensor<2x4xi32>
  // CHECK: nn.convert %{{.*}} : tensor<2x4xi32> -> tensor<2x4xf32>
  %number = nn.convert %whole : tensor<2x4xi32> -> tensor<2x4xf32>
  // CHECK: nn.add %{{.*}}, %{{.*}} : tensor<2x4xf32>
  %9 = nn.add %x, %y : tensor<2x4xf32>
  // CHECK: nn.sub
  %10 = nn.sub %x, %y : tensor<2x4xf32>
  // CHECK: nn.mul
  %11 = nn.mul %x, %y : tensor<2x4xf32>
  // CHECK: nn.div
  %12 = nn.div %x, %y : tensor<2x4xf32>
  // CHECK: nn.min
  %13 = nn.min %x, %y : tensor<2x4xf32>
  // CHECK: nn.scale %{{.*}} by 2.000000e+00 : tensor<2x4xf32>
  %14 = nn.scale %x by 2.0 : tensor<2x4xf32>
  // CHECK: nn.shift %{{.*}} by 2.000000e+00 : tensor<2x4xf32>
  %15 = nn.shift %x by 2.0 : tensor<2x4xf32>
  // CHECK: nn.stop_gradient
  %16 = nn.stop_gradient %x : tensor<2x4xf32>
  return
}

// CHECK-LABEL: func @places
func.func @places(%b: tensor<4xf32>, %x: tensor<2x8x8xf32>, %y: tensor<2x4xf32>,
                  %ids: tensor<2xi32>) {
  // CHECK: nn.fill 1.000000e+00 : tensor<2x4xf32>
  %0 = nn.fill 1.0 : tensor<2x4xf32>
  // CHECK: nn.iota along 1 : tensor<2x8xi32>
  %1 = nn.iota along 1 : tensor<2x8xi32>
  // CHECK: nn.rope_table theta 1.000000e+04 : tensor<8x4xf32>
  %2 = nn.rope_table theta 1.0e+04 : tensor<8x4xf32>
  // CHECK: nn.rope_table theta 1.000000e+04 yarn <factor = 8.000000e+00 : f64, first = 0.000000e+00 : f64, last = 3.000000e+00 : f64, amplitude = 1.250000e+00 : f64> rotated 2 : tensor<8x4xf32>
  %yarn = nn.rope_table theta 1.0e+04 yarn <factor = 8.0, first = 0.0, last = 3.0, amplitude = 1.25> rotated 2 : tensor<8x4xf32>
  // CHECK: nn.rope_table sine theta 1.000000e+04 : tensor<8x4xf32>
  %3 = nn.rope_table sine theta 1.0e+04 : tensor<8x4xf32>
  // CHECK: nn.rotate_half %{{.*}} : tensor<2x4xf32>
  %4 = nn.rotate_half %y : tensor<2x4xf32>
  // CHECK: nn.broadcast %{{.*}} dims [2] : tensor<4xf32> -> tensor<2x8x4xf32>
  %5 = nn.broadcast %b dims [2] : tensor<4xf32> -> tensor<2x8x4xf32>
  // CHECK: nn.broadcast %{{.*}} dims [1, 0] : tensor<2x4xf32> -> tensor<4x2x3xf32>
  %turned = nn.broadcast %y dims [1, 0] : tensor<2x4xf32> -> tensor<4x2x3xf32>
  // CHECK: nn.reduce sum %{{.*}} dims [0, 1] : tensor<2x8x8xf32> -> tensor<8xf32>
  %6 = nn.reduce sum %x dims [0, 1] : tensor<2x8x8xf32> -> tensor<8xf32>
  // CHECK: nn.reduce max %{{.*}} dims [2] : tensor<2x8x8xf32> -> tensor<2x8xf32>
  %7 = nn.reduce max %x dims [2] : tensor<2x8x8xf32> -> tensor<2x8xf32>
  // CHECK: nn.pick %{{.*}}, %{{.*}} : tensor<2x4xf32>, tensor<2xi32> -> tensor<2x4xf32>
  %8 = nn.pick %y, %ids : tensor<2x4xf32>, tensor<2xi32> -> tensor<2x4xf32>
  // CHECK: nn.valid %{{.*}} ignore -100 : tensor<2xi32> -> tensor<2xf32>
  %9 = nn.valid %ids ignore -100 : tensor<2xi32> -> tensor<2xf32>
  // CHECK: nn.causal_mask %{{[^ ]*}} : tensor<2x8x8xf32>
  %10 = nn.causal_mask %x : tensor<2x8x8xf32>
  // CHECK: nn.causal_mask %{{.*}} window 2 : tensor<2x8x8xf32>
  %11 = nn.causal_mask %x window 2 : tensor<2x8x8xf32>
  // CHECK: nn.causal_mask %{{.*}} {begin = #nn.begin<"dp" * 16, "cp" * 8>} : tensor<2x8x8xf32>
  %13 = nn.causal_mask %x {begin = #nn.begin<"dp" * 16, "cp" * 8>} : tensor<2x8x8xf32>
  // CHECK: nn.rope_table theta 1.000000e+04 {begin = #nn.begin<"cp" * 8>} : tensor<8x4xf32>
  %14 = nn.rope_table theta 1.0e+04 {begin = #nn.begin<"cp" * 8>} : tensor<8x4xf32>
  // CHECK: nn.dropout %{{.*}}, %{{.*}} probability 1.000000e-01 site 3 : tensor<2x8x8xf32>, tensor<2xi32>
  %15 = nn.dropout %x, %ids probability 0.1 site 3 : tensor<2x8x8xf32>, tensor<2xi32>
  // CHECK: nn.dropout {{.*}} {begins = [unit, #nn.begin<"cp" * 8>, unit]} : tensor<2x8x8xf32>, tensor<2xi32>
  %16 = nn.dropout %x, %ids probability 0.1 site 3 {begins = [unit, #nn.begin<"cp" * 8>, unit]} : tensor<2x8x8xf32>, tensor<2xi32>
  // CHECK: nn.causal_mask %{{.*}} {begin = #nn.begin<of 8 zigzag 4>} : tensor<2x8x8xf32>
  %17 = nn.causal_mask %x {begin = #nn.begin<of 8 zigzag 4>} : tensor<2x8x8xf32>
  // CHECK: nn.iota along 0 {begin = #nn.begin<"cp" * 8, "tp" * 4 of 16 zigzag 4>} : tensor<4xi32>
  %18 = nn.iota along 0 {begin = #nn.begin<"cp" * 8, "tp" * 4 of 16 zigzag 4>} : tensor<4xi32>
  // CHECK: nn.reorder %{{.*}} dim 1 zigzag 4 : tensor<2x8x8xf32>
  %19 = nn.reorder %x dim 1 zigzag 4 : tensor<2x8x8xf32>
  // CHECK: nn.reorder %{{.*}} dim 0 zigzag 2 inverse : tensor<2xi32>
  %20 = nn.reorder %ids dim 0 zigzag 2 inverse : tensor<2xi32>
  // CHECK: nn.mask_padding %{{.*}} dim 1 begin<"tp" * 4> limit 7 by 0.000000e+00 : tensor<2x4xf32>
  %12 = nn.mask_padding %y dim 1 begin <"tp" * 4> limit 7 by 0.0 : tensor<2x4xf32>
  return
}

// A matmul that splits the contracted dimension gives a partial sum; its type
// says so.
// CHECK-LABEL: func @sharded
func.func @sharded(%x: tensor<8x16xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"}]>>,
                   %w: tensor<16x4xf32, #dist.sharding<@mesh, [{"tp"}, {}]>>) {
  // CHECK: nn.matmul {{.*}} -> tensor<8x4xf32, #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"}>>
  %y = nn.matmul %x, %w "ah,hc->ac" : (
      tensor<8x16xf32, #dist.sharding<@mesh, [{"dp"}, {"tp"}]>>,
      tensor<16x4xf32, #dist.sharding<@mesh, [{"tp"}, {}]>>) ->
      tensor<8x4xf32, #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"}>>
  return
}
