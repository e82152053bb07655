// RUN: plait-opt %s --nn-decompose=early=true | FileCheck %s --check-prefix=EARLY
// RUN: plait-opt %s --nn-decompose | FileCheck %s --check-prefix=LATE

// What the parts compute is compared with PyTorch in test/Unit; here it is which
// ops are decomposed, and when.

// Before sharding: the loss, whose parts may be split over the vocabulary. The
// maximum is a constant to the derivative; it cancels.
// EARLY-LABEL: func.func @cross_entropy(
// EARLY-SAME: %[[X:[^:]*]]: tensor<2x16xf32>, %[[IDS:[^:]*]]: tensor<2xi32>)
// EARLY-NOT: nn.softmax_cross_entropy
// EARLY: %[[MAX:.*]] = nn.reduce max %{{.*}} dims [1]
// EARLY: nn.stop_gradient
// EARLY: nn.exp
// EARLY: nn.reduce sum {{.*}} dims [1]
// EARLY: nn.pick %{{.*}}, %[[IDS]]
// EARLY: nn.log
// EARLY: nn.valid %[[IDS]] ignore -100
// EARLY: return
// LATE-LABEL: func.func @cross_entropy(
// LATE-NOT: nn.softmax_cross_entropy
// LATE: return
func.func @cross_entropy(%x: tensor<2x16xf32>, %ids: tensor<2xi32>) -> (tensor<f32>, tensor<f32>) {
  %loss, %count = nn.softmax_cross_entropy %x, %ids ignore -100 : (tensor<2x16xf32>, tensor<2xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss, %count : tensor<f32>, tensor<f32>
}

// The choice of experts, whose parts may be split over tokens: what is compared has
// no gradient, and weights are selected by the ids.
// EARLY-LABEL: func.func @route(
// EARLY-NOT: nn.route
// EARLY: nn.iota along 0 : tensor<4xi32>
// EARLY: nn.greater
// EARLY: nn.equal
// EARLY: %[[IDS:.*]] = nn.convert %{{.*}} : tensor<2x2xf32> -> tensor<2x2xi32>
// EARLY: nn.pick %{{.*}}, %[[IDS]] : tensor<2x2x4xf32>, tensor<2x2xi32>
// EARLY: return %{{.*}}, %[[IDS]]
func.func @route(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {
  %w, %ids = nn.route %x choices 2 scores softmax normalized : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return %w, %ids : tensor<2x2xf32>, tensor<2x2xi32>
}

// On the local graph: all other named ops. Before, sharding and differentiation
// take them whole.
// EARLY-LABEL: func.func @named(
// EARLY-NEXT: nn.layer_norm
// EARLY-NEXT: nn.rms_norm
// EARLY-NEXT: nn.gelu
// EARLY-NEXT: nn.silu
// EARLY-NEXT: nn.gelu_grad
// EARLY-NEXT: return
// LATE-LABEL: func.func @named(
// LATE-NOT: nn.{{layer_norm|rms_norm|gelu|silu}}
// LATE: return
func.func @named(%x: tensor<2x4xf32>, %w: tensor<4xf32>) -> tensor<2x4xf32> {
  %0:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  %1:2 = nn.rms_norm %0#0, %w epsilon 1.0e-05 : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>)
  %2 = nn.gelu %1#0 : tensor<2x4xf32>
  %3 = nn.silu %2 : tensor<2x4xf32>
  %4 = nn.gelu_grad %3, %1#0 : tensor<2x4xf32>
  return %4 : tensor<2x4xf32>
}

// EARLY-LABEL: func.func @attention(
// EARLY-NEXT: nn.rope
// EARLY-NEXT: nn.attention
// EARLY-NEXT: nn.attention_grad
// LATE-LABEL: func.func @attention(
// LATE-NOT: nn.rope %
// LATE-NOT: nn.attention
// LATE: nn.rope_table
// LATE: nn.rope_table sine
// LATE-NOT: nn.attention
// LATE: nn.causal_mask
// LATE-NOT: nn.attention
// LATE: return
func.func @attention(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> tensor<2x8x2x3x4xf32> {
  %0 = nn.rope %q theta 1.0e+04 : tensor<2x8x2x3x4xf32>
  %1:2 = nn.attention %0, %k, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %2:3 = nn.attention_grad %0, %k, %k, %1#0, %1#1, %1#0 scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return %2#0 : tensor<2x8x2x3x4xf32>
}

// The parts belong to what the whole belonged to.
// LATE-LABEL: func.func @attributes(
// LATE-NEXT: nn.sigmoid %{{.*}} {nn.layer = 3 : i64, note}
// LATE-NEXT: nn.mul %{{.*}} {nn.layer = 3 : i64, note}
// LATE-NEXT: return
func.func @attributes(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.silu %x {nn.layer = 3 : i64, note} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Primitives are left alone.
// EARLY-LABEL: func.func @primitive(
// EARLY-NEXT: nn.exp
// EARLY-NEXT: nn.reduce max
// EARLY-NEXT: return
// LATE-LABEL: func.func @primitive(
// LATE-NEXT: nn.exp
// LATE-NEXT: nn.reduce max
// LATE-NEXT: return
func.func @primitive(%x: tensor<2x4xf32>) -> tensor<2xf32> {
  %0 = nn.exp %x : tensor<2x4xf32>
  %1 = nn.reduce max %0 dims [1] : tensor<2x4xf32> -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// bf16 is widened before arithmetic and rounded once after it; what is repeated
// along rows is widened after that, for a kernel does both at no cost.
// LATE-LABEL: func.func @bf16_norm(
// LATE-SAME: %[[X:[^:]*]]: tensor<2x4xbf16>, %[[W:[^:]*]]: tensor<4xbf16>)
// LATE-NEXT: %[[WIDE:.*]] = nn.cast %[[X]] : tensor<2x4xbf16> -> tensor<2x4xf32>
// LATE: nn.reduce sum %{{.*}} : tensor<2x4xf32> -> tensor<2xf32>
// LATE: %[[SPREAD:.*]] = nn.broadcast %[[W]] dims [1] : tensor<4xbf16> -> tensor<2x4xbf16>
// LATE-NEXT: nn.cast %[[SPREAD]] : tensor<2x4xbf16> -> tensor<2x4xf32>
// LATE-NEXT: %[[OUT:.*]] = nn.mul
// LATE-NEXT: %[[ROUNDED:.*]] = nn.cast %[[OUT]] : tensor<2x4xf32> -> tensor<2x4xbf16>
// LATE-NEXT: return %[[ROUNDED]]
func.func @bf16_norm(%x: tensor<2x4xbf16>, %w: tensor<4xbf16>) -> tensor<2x4xbf16> {
  %0:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<2x4xbf16>, tensor<4xbf16>) -> (tensor<2x4xbf16>, tensor<2xf32>)
  return %0#0 : tensor<2x4xbf16>
}

// Logits in bf16: the loss is f32 from the widened logits on.
// EARLY-LABEL: func.func @bf16_loss(
// EARLY-NEXT: nn.cast %{{.*}} : tensor<2x8x16xbf16> -> tensor<2x8x16xf32>
// EARLY-NOT: bf16
// EARLY: return
func.func @bf16_loss(%logits: tensor<2x8x16xbf16>, %ids: tensor<2x8xi32>) -> tensor<f32> {
  %0:2 = nn.softmax_cross_entropy %logits, %ids ignore -100 : (tensor<2x8x16xbf16>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %0#0 : tensor<f32>
}

// Dropout stands between the softmax and the values; backward, the same mask is
// drawn for the softmax and for what comes back to it.
// LATE-LABEL: func.func @attention_with_dropout(
// LATE-SAME: %[[KEYS:[^:]*]]: tensor<2xi32>)
// LATE: %[[P:.*]] = nn.div
// LATE: %[[DROPPED:.*]] = nn.dropout %[[P]], %[[KEYS]] probability 1.000000e-01 site 3 {begins = [unit, #nn.begin<"tp" * 2>, unit, #nn.begin<"cp" * 8>, unit]} : tensor<2x2x3x8x16xf32>, tensor<2xi32>
// LATE: nn.matmul %[[DROPPED]], %{{.*}} "bgrst,btgd->bsgrd"
// LATE: %[[AGAIN:.*]] = nn.exp
// LATE: %[[WEIGHED:.*]] = nn.dropout %[[AGAIN]], %[[KEYS]] probability 1.000000e-01 site 3 {begins
// LATE: nn.matmul %[[WEIGHED]], %{{.*}} "bgrst,bsgrd->btgd"
// LATE: %[[BACK:.*]] = nn.matmul %{{.*}} "bsgrd,btgd->bgrst"
// LATE: %[[DP:.*]] = nn.dropout %[[BACK]], %[[KEYS]] probability 1.000000e-01 site 3 {begins
// LATE: nn.mul %[[AGAIN]], %[[DP]]
func.func @attention_with_dropout(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x16x2x4xf32>, %keys: tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>) {
  %o, %lse = nn.attention %q, %k, %k scale 0.5 dropout %keys probability 0.1 site 3 {begin = #nn.begin<"cp" * 8>, group_begin = #nn.begin<"tp" * 2>} : (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %dq, %dk, %dv = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 0.5 dropout %keys probability 0.1 site 3 {begin = #nn.begin<"cp" * 8>, group_begin = #nn.begin<"tp" * 2>} : (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>)
  return %dq, %dk, %dv : tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>
}

// Without a mask each query sees all keys; with a window those on both sides.
// LATE-LABEL: func.func @attention_to_both_sides(
// LATE-NOT: nn.causal_mask
// LATE: nn.reduce max
// LATE-NOT: nn.causal_mask
// LATE: nn.causal_mask %{{.*}} window 3 bidirectional : tensor<2x2x3x8x8xf32>
// LATE-NOT: nn.causal_mask
// LATE: return
func.func @attention_to_both_sides(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x3x4xf32>) {
  %o, %l = nn.attention %q, %k, %k scale 0.5 bidirectional : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %p, %m = nn.attention %q, %k, %k scale 0.5 window 3 bidirectional : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return %o, %p : tensor<2x8x2x3x4xf32>, tensor<2x8x2x3x4xf32>
}

// A sink is one more term of the sum, of which the others have their share, and its
// gradient comes from what is kept.
// LATE-LABEL: func.func @attention_with_sinks(
// LATE-SAME: %[[SINKS:[^:]*]]: tensor<2x3xbf16>)
// LATE: %[[WIDE:.*]] = nn.cast %[[SINKS]] :
// LATE: nn.tanh
// LATE: nn.causal_mask
// LATE: %[[LSE:.*]] = nn.add
// LATE: %[[OUT:.*]] = nn.matmul %{{.*}} "bgrst,btgd->bsgrd"
// LATE: %[[ROWS:.*]] = nn.broadcast %[[WIDE]] dims [1, 2] : tensor<2x3xf32> -> tensor<2x2x3x8xf32>
// LATE: nn.min
// LATE: %[[OWN:.*]] = nn.sub %[[LSE]], %[[TOP:.*]] :
// LATE: %[[OTHERS:.*]] = nn.exp %[[OWN]]
// LATE: %[[LESS:.*]] = nn.sub %[[ROWS]], %[[TOP]] :
// LATE: nn.exp %[[LESS]]
// LATE: %[[SHARE:.*]] = nn.div %[[OTHERS]]
// LATE: %[[WIDER:.*]] = nn.cast %[[OUT]] :
// LATE: %[[EACH:.*]] = nn.broadcast %[[SHARE]] dims [0, 2, 3, 1] : tensor<2x2x3x8xf32> -> tensor<2x8x2x3x4xf32>
// LATE: nn.mul %[[WIDER]], %[[EACH]]
// LATE-NOT: nn.attention
// LATE: nn.matmul %{{.*}} "bgrs,bsgr->gr" : (tensor<2x2x3x8xf32>, tensor<2x8x2x3xf32>) -> tensor<2x3xf32>
func.func @attention_with_sinks(%q: tensor<2x8x2x3x4xbf16>, %k: tensor<2x8x2x4xbf16>, %s: tensor<2x3xbf16>) -> (tensor<2x3xf32>, tensor<2x8x2x4xbf16>) {
  %o, %lse = nn.attention %q, %k, %k scale 0.5 soft_cap 50.0 sinks %s : (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x3xbf16>) -> (tensor<2x8x2x3x4xbf16>, tensor<2x2x3x8xf32>)
  %dq, %dk, %dv, %ds = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 0.5 soft_cap 50.0 sinks %s : (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x3x4xbf16>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xbf16>, tensor<2x3xbf16>) -> (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x8x2x4xbf16>, tensor<2x3xf32>)
  return %ds, %dk : tensor<2x3xf32>, tensor<2x8x2x4xbf16>
}

// Rows of one element have no number each that kernels find.
// LATE-LABEL: func.func @sinks_of_small_heads(
// LATE-NOT: nn.broadcast {{.*}} dims [0, 2, 3, 1]
// LATE: nn.matmul %{{.*}} "bgrs,bsgrd->bsgrd"
// LATE-NOT: nn.attention
// LATE: return
func.func @sinks_of_small_heads(%q: tensor<2x8x2x3x1xf32>, %k: tensor<2x8x2x1xf32>, %s: tensor<2x3xf32>) -> tensor<2x8x2x3x1xf32> {
  %o, %lse = nn.attention %q, %k, %k scale 0.5 sinks %s : (tensor<2x8x2x3x1xf32>, tensor<2x8x2x1xf32>, tensor<2x8x2x1xf32>, tensor<2x3xf32>) -> (tensor<2x8x2x3x1xf32>, tensor<2x2x3x8xf32>)
  return %o : tensor<2x8x2x3x1xf32>
}

// LATE-LABEL: func.func @attention_within_documents(
// LATE-SAME: %[[STARTS:[^:]*]]: tensor<2x8xi32>)
// LATE: %[[ROWS:.*]] = nn.broadcast %[[STARTS]] dims [0, 3] : tensor<2x8xi32> -> tensor<2x2x3x8xi32>
// LATE: nn.causal_mask %{{.*}} starts %[[ROWS]] : tensor<2x2x3x8xi32> {begin = #nn.begin<"cp" * 8>} : tensor<2x2x3x8x16xf32>
// LATE: %[[AGAIN:.*]] = nn.broadcast %[[STARTS]] dims [0, 3]
// LATE: nn.causal_mask %{{.*}} starts %[[AGAIN]]
func.func @attention_within_documents(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x16x2x4xf32>, %starts: tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>) {
  %o, %lse = nn.attention %q, %k, %k scale 0.5 starts %starts {begin = #nn.begin<"cp" * 8>} : (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  %dq, %dk, %dv = nn.attention_grad %q, %k, %k, %o, %lse, %o scale 0.5 starts %starts {begin = #nn.begin<"cp" * 8>} : (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>)
  return %dq, %dk, %dv : tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>
}
