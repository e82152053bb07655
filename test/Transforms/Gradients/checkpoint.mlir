// RUN: plait-opt %s --nn-checkpoint | FileCheck %s --check-prefixes=CHECK,NONE
// RUN: plait-opt %s --plait-configure=recompute=none --nn-checkpoint | FileCheck %s --check-prefixes=CHECK,NONE
// RUN: plait-opt %s --plait-configure=recompute=full --nn-checkpoint | FileCheck %s --check-prefixes=CHECK,FULL

nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>

// Two layers. With `none` the backward pass uses what the forward pass left, but
// for %c, which is made again of %b, which is read anyway.
// With `full` each layer's values are computed again from what the layer got,
// right before its backward pass: %b is kept, as the input of layer 1, and
// computed again in layer 0. Parameters are read again either way.
// CHECK-LABEL: func.func @layers(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {{{[^}]*}}}, %[[DY:[^:]*]]: tensor<4xf32> {{{[^}]*}}})
func.func @layers(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK: %[[W:.*]] = nn.read @w value {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[A:.*]] = nn.mul %[[X]], %[[W]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[B:.*]] = nn.exp %[[A]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[C:.*]] = nn.tanh %[[B]] {nn.layer = 1 : i64}
  // CHECK-NEXT: %[[D:.*]] = nn.exp %[[C]] {nn.layer = 1 : i64}
  %w = nn.read @w value {nn.layer = 0 : i64} : tensor<4xf32>
  %a = nn.mul %x, %w {nn.layer = 0 : i64} : tensor<4xf32>
  %b = nn.exp %a {nn.layer = 0 : i64} : tensor<4xf32>
  %c = nn.tanh %b {nn.layer = 1 : i64} : tensor<4xf32>
  %d = nn.exp %c {nn.layer = 1 : i64} : tensor<4xf32>

  // FULL-NEXT: %[[C2:.*]] = nn.tanh %[[B]] {nn.backward, nn.layer = 1 : i64}
  // FULL-NEXT: %[[D2:.*]] = nn.exp %[[C2]] {nn.backward, nn.layer = 1 : i64}
  // FULL-NEXT: %[[E:.*]] = nn.mul %[[DY]], %[[D2]] {nn.backward, nn.layer = 1 : i64}
  // FULL-NEXT: %[[F:.*]] = nn.mul %[[E]], %[[C2]]
  // FULL-NEXT: %[[W2:.*]] = nn.read @w value {nn.backward, nn.layer = 0 : i64}
  // FULL-NEXT: %[[A2:.*]] = nn.mul %[[X]], %[[W2]] {nn.backward, nn.layer = 0 : i64}
  // FULL-NEXT: %[[B2:.*]] = nn.exp %[[A2]] {nn.backward, nn.layer = 0 : i64}
  // FULL-NEXT: %[[G:.*]] = nn.mul %[[F]], %[[B2]]
  // FULL-NEXT: %[[H:.*]] = nn.mul %[[G]], %[[W2]]

  // NONE-NEXT: %[[W2:.*]] = nn.read @w value {nn.backward, nn.layer = 0 : i64}
  // NONE-NEXT: %[[E:.*]] = nn.mul %[[DY]], %[[D]]
  // NONE-NEXT: %[[C2:.*]] = nn.tanh %[[B]] {nn.backward, nn.layer = 1 : i64}
  // NONE-NEXT: %[[F:.*]] = nn.mul %[[E]], %[[C2]]
  // NONE-NEXT: %[[G:.*]] = nn.mul %[[F]], %[[B]]
  // NONE-NEXT: %[[H:.*]] = nn.mul %[[G]], %[[W2]]

  // CHECK-NEXT: return %[[D]], %[[H]]
  %e = nn.mul %dy, %d {nn.backward, nn.layer = 1 : i64} : tensor<4xf32>
  %f = nn.mul %e, %c {nn.backward, nn.layer = 1 : i64} : tensor<4xf32>
  %g = nn.mul %f, %b {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  %h = nn.mul %g, %w {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  return %d, %h : tensor<4xf32>, tensor<4xf32>
}

// What no layer owns is kept under both; constants and repetitions of smaller
// values are always made again, the repeated value is not.
// CHECK-LABEL: func.func @no_layer(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {{{[^}]*}}}, %[[DY:[^:]*]]: tensor<2x4xf32> {{{[^}]*}}})
func.func @no_layer(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<2x4xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<2x4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK-NEXT: %[[A:.*]] = nn.exp %[[X]]
  // CHECK-NEXT: nn.broadcast
  // CHECK-NEXT: nn.fill
  %a = nn.exp %x : tensor<4xf32>
  %b = nn.broadcast %a dims [1] : tensor<4xf32> -> tensor<2x4xf32>
  %c = nn.fill 2.0 : tensor<2x4xf32>
  // CHECK-NEXT: %[[B2:.*]] = nn.broadcast %[[A]] dims [1] {nn.backward}
  // CHECK-NEXT: %[[C2:.*]] = nn.fill 2.0{{.*}} {nn.backward}
  // CHECK-NEXT: %[[D:.*]] = nn.mul %[[DY]], %[[B2]]
  // CHECK-NEXT: nn.mul %[[D]], %[[C2]]
  %d = nn.mul %dy, %b {nn.backward} : tensor<2x4xf32>
  %e = nn.mul %d, %c {nn.backward} : tensor<2x4xf32>
  return %e : tensor<2x4xf32>
}

// The activation of a gate is made again where a backward kernel reads the gate
// anyway, right before it; not where a matmul reads the activation, nor where
// nobody reads the gate.
// CHECK-LABEL: func.func @gate(
// CHECK-SAME: %[[G:[^:]*]]: tensor<4x4xf32> {{{[^}]*}}}, %[[U:[^:]*]]: tensor<4x4xf32> {{{[^}]*}}}, %[[DY:[^:]*]]: tensor<4x4xf32>
func.func @gate(%g: tensor<4x4xf32> {pipe.port = #pipe.port<input 0>}, %u: tensor<4x4xf32> {pipe.port = #pipe.port<input 1>}, %dy: tensor<4x4xf32> {pipe.port = #pipe.port<input 2>}) -> (tensor<4x4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4x4xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK-NEXT: nn.silu %[[G]] :
  // CHECK-NEXT: %[[S2:.*]] = nn.silu %[[U]]
  // CHECK-NEXT: %[[S3:.*]] = nn.silu %[[U]]
  // CHECK-NEXT: nn.mul
  %s = nn.silu %g : tensor<4x4xf32>
  %s2 = nn.silu %u : tensor<4x4xf32>
  %s3 = nn.silu %u : tensor<4x4xf32>
  %y = nn.mul %s, %u : tensor<4x4xf32>
  // CHECK-NEXT: %[[A:.*]] = nn.mul %[[DY]], %[[G]] {nn.backward}
  // CHECK-NEXT: %[[S:.*]] = nn.silu %[[G]] {nn.backward}
  // CHECK-NEXT: %[[B:.*]] = nn.mul %[[A]], %[[S]] {nn.backward}
  // CHECK-NEXT: nn.matmul %[[B]], %[[S2]]
  // CHECK-NEXT: nn.mul %{{.*}}, %[[S3]]
  %a = nn.mul %dy, %g {nn.backward} : tensor<4x4xf32>
  %b = nn.mul %a, %s {nn.backward} : tensor<4x4xf32>
  %c = nn.matmul %b, %s2 "ij,jk->ik" {nn.backward} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = nn.mul %c, %s3 {nn.backward} : tensor<4x4xf32>
  return %y, %d : tensor<4x4xf32>, tensor<4x4xf32>
}

// A layer's collective is repeated with the layer: its result is not kept.
#partial = #dist.sharding<@mesh, [{}], partial = {"tp"}>
#whole = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @collective(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32,
func.func @collective(%x: tensor<4xf32, #partial> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32, #whole> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32, #whole> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK-NEXT: dist.reshard %[[X]] {nn.layer = 0 : i64}
  // FULL-NEXT: dist.reshard %[[X]] {nn.backward, nn.layer = 0 : i64}
  // CHECK-NEXT: nn.mul
  %a = dist.reshard %x {nn.layer = 0 : i64} : tensor<4xf32, #partial> -> tensor<4xf32, #whole>
  %b = nn.mul %dy, %a {nn.backward, nn.layer = 0 : i64} : tensor<4xf32, #whole>
  return %b : tensor<4xf32, #whole>
}

// Only joint functions are touched.
// CHECK-LABEL: func.func @forward(
// CHECK-NEXT: nn.read
// CHECK-NEXT: nn.exp
// CHECK-NEXT: return
func.func @forward() -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value {nn.layer = 0 : i64} : tensor<4xf32>
  %0 = nn.exp %w {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// What is computed in f32 of bf16 numbers, element by element, is made again of
// them where it is first needed: an exponential of logits that are kept anyway.
// In f32 the exponential would be as large as what it is made of, and is kept.
// CHECK-LABEL: func.func @wide(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x8xbf16> {{{[^}]*}}}, %[[Y:[^:]*]]: tensor<4x8xf32>
func.func @wide(%x: tensor<4x8xbf16> {pipe.port = #pipe.port<input 0>}, %y: tensor<4x8xf32> {pipe.port = #pipe.port<input 1>}, %top: tensor<4xf32> {pipe.port = #pipe.port<input 2>}, %dy: tensor<4x8xf32> {pipe.port = #pipe.port<input 3>}) -> (tensor<4x8xf32> {pipe.port = #pipe.port<output 0>}, tensor<4x8xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  %0 = nn.cast %x : tensor<4x8xbf16> -> tensor<4x8xf32>
  %1 = nn.broadcast %top dims [0] : tensor<4xf32> -> tensor<4x8xf32>
  %2 = nn.sub %0, %1 : tensor<4x8xf32>
  %3 = nn.exp %2 : tensor<4x8xf32>
  // CHECK: %[[KEPT:.*]] = nn.exp %[[Y]] : tensor<4x8xf32>
  %4 = nn.exp %y : tensor<4x8xf32>
  // CHECK: nn.neg %{{.*}} {nn.backward}
  // CHECK-NEXT: %[[WIDE:.*]] = nn.cast %[[X]] {nn.backward}
  // CHECK-NEXT: %[[SHIFTED:.*]] = nn.sub %[[WIDE]], %{{.*}} {nn.backward}
  // CHECK-NEXT: %[[AGAIN:.*]] = nn.exp %[[SHIFTED]] {nn.backward}
  // CHECK-NEXT: nn.mul %{{.*}}, %[[AGAIN]] {nn.backward}
  // CHECK-NEXT: nn.mul %{{.*}}, %[[KEPT]] {nn.backward}
  %5 = nn.neg %dy {nn.backward} : tensor<4x8xf32>
  %6 = nn.mul %5, %3 {nn.backward} : tensor<4x8xf32>
  %7 = nn.mul %5, %4 {nn.backward} : tensor<4x8xf32>
  return %6, %7 : tensor<4x8xf32>, tensor<4x8xf32>
}

// A widened value is made again of its bf16 source, which is half as large to
// keep; a rounded one is kept.
// CHECK-LABEL: func.func @casts(
func.func @casts(%x: tensor<4xbf16> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xbf16> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK-NEXT: %[[Y:.*]] = nn.exp %{{.*}} : tensor<4xbf16>
  // CHECK-NEXT: nn.cast %[[Y]] : tensor<4xbf16> -> tensor<4xf32>
  // CHECK-NEXT: %[[AGAIN:.*]] = nn.cast %[[Y]] {nn.backward} : tensor<4xbf16> -> tensor<4xf32>
  // CHECK-NEXT: nn.mul %{{.*}}, %[[AGAIN]]
  %y = nn.exp %x : tensor<4xbf16>
  %wide = nn.cast %y : tensor<4xbf16> -> tensor<4xf32>
  %0 = nn.mul %dy, %wide {nn.backward} : tensor<4xf32>
  // CHECK-NEXT: %[[ROUNDED:.*]] = nn.cast %{{.*}} : tensor<4xf32> -> tensor<4xbf16>
  // CHECK-NEXT: nn.exp %[[ROUNDED]] {nn.backward}
  %1 = nn.cast %dy : tensor<4xf32> -> tensor<4xbf16>
  %2 = nn.exp %1 {nn.backward} : tensor<4xbf16>
  return %0, %2 : tensor<4xf32>, tensor<4xbf16>
}

// A comparison is never made again, only what is made of it: of what is computed
// again it could find otherwise.
// CHECK-LABEL: func.func @comparison(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {{{[^}]*}}},
func.func @comparison(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK-NEXT: %[[A:.*]] = nn.exp %[[X]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[B:.*]] = nn.tanh %[[A]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[C:.*]] = nn.equal %[[A]], %[[B]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[D:.*]] = nn.is_zero %[[A]] {nn.layer = 0 : i64}
  // CHECK-NEXT: nn.cast %[[C]] {nn.layer = 0 : i64}
  // FULL-NOT: nn.exp
  // CHECK: %[[WIDE:.*]] = nn.cast %[[C]] {nn.backward, nn.layer = 0 : i64}
  // CHECK: nn.mul %{{.*}}, %[[WIDE]]
  // CHECK: nn.mul %{{.*}}, %[[D]]
  %a = nn.exp %x {nn.layer = 0 : i64} : tensor<4xf32>
  %b = nn.tanh %a {nn.layer = 0 : i64} : tensor<4xf32>
  %c = nn.equal %a, %b {nn.layer = 0 : i64} : tensor<4xf32> -> tensor<4xbf16>
  %d = nn.is_zero %a {nn.layer = 0 : i64} : tensor<4xf32>
  %wide = nn.cast %c {nn.layer = 0 : i64} : tensor<4xbf16> -> tensor<4xf32>
  %e = nn.mul %dy, %wide {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  %f = nn.mul %e, %d {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  return %f : tensor<4xf32>
}
