// RUN: plait-opt %s --pipe-split-phases | FileCheck %s
// RUN: plait-opt %s --plait-configure=schedule=zb-h1 --pipe-split-phases | FileCheck %s --check-prefix=SPLIT

nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>

// What the backward pass needs crosses under one name, result of the one and
// argument of the other: %res as a residual, the input and the output under the
// names they have. It crosses once, however often it is used, and gradients
// appear in the backward function only.
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<input 0>})
// CHECK-SAME: -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<residual 0>})
// CHECK-SAME: attributes {pipe.function = #pipe.function<forward, 1>}
// CHECK: %[[A:.*]] = nn.tanh %[[X]]
// CHECK: %[[OUT:.*]] = nn.exp %[[A]]
// CHECK-NOT: nn.mul
// CHECK: return %[[OUT]], %[[A]] :
// CHECK-LABEL: func.func @backward_1(
// CHECK-SAME: %[[DOUT:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>},
// CHECK-SAME: %[[OUT:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<output 0>},
// CHECK-SAME: %[[A:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<residual 0>},
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<input 0>})
// CHECK-SAME: -> (tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>})
// CHECK-SAME: attributes {pipe.function = #pipe.function<backward, 1>}
// CHECK: %[[W:.*]] = nn.read @w value : tensor<4xf32>
// CHECK: %[[B:.*]] = nn.mul %[[DOUT]], %[[OUT]] : tensor<4xf32>
// CHECK: %[[C:.*]] = nn.mul %[[B]], %[[A]]
// CHECK: %[[D:.*]] = nn.mul %[[C]], %[[A]]
// CHECK: nn.accumulate %[[D]] to @w gradient : tensor<4xf32>
// CHECK: %[[E:.*]] = nn.mul %[[C]], %[[X]]
// CHECK: %[[F:.*]] = nn.mul %[[E]], %[[W]]
// CHECK: return %[[F]] : tensor<4xf32>
func.func @joint_1(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dout: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<joint, 1>} {
  %res = nn.tanh %x : tensor<4xf32>
  %out = nn.exp %res : tensor<4xf32>
  %w = nn.read @w value {nn.backward} : tensor<4xf32>
  %b = nn.mul %dout, %out {nn.backward} : tensor<4xf32>
  %c = nn.mul %b, %res {nn.backward} : tensor<4xf32>
  %d = nn.mul %c, %res {nn.backward} : tensor<4xf32>
  nn.accumulate %d to @w gradient {nn.backward} : tensor<4xf32>
  %e = nn.mul %c, %x {nn.backward} : tensor<4xf32>
  %f = nn.mul %e, %w {nn.backward} : tensor<4xf32>
  return %out, %f : tensor<4xf32>, tensor<4xf32>
}

// A gradient that is handed through without an op.
// CHECK-LABEL: func.func @forward_2(
// CHECK-SAME: -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>})
// CHECK-LABEL: func.func @backward_2(
// CHECK-SAME: %[[DOUT:[^:]*]]: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>})
// CHECK-NEXT: return %[[DOUT]]
func.func @joint_2(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %dout: tensor<4xf32> {pipe.port = #pipe.port<output_gradient 0>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<joint, 2>} {
  return %x, %dout : tensor<4xf32>, tensor<4xf32>
}

// Other functions stay.
// CHECK-LABEL: func.func @other(
// CHECK: nn.exp {{.*}} {nn.backward}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.exp %x {nn.backward} : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// With `weights`: the matmul of @a's gradient is delayed, with the cast behind
// it; that of the input's gradient is not. What both read lives on: the gradient
// of the output, and %x. %h is made of %x again where it is needed, since that
// keeps nothing more; %p is not, since it would keep two tensors for one. The sum
// for @b reads all of %dy and is not delayed. A parameter is read where it is
// used.
nn.parameter @a : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>
// SPLIT-LABEL: func.func @forward_3(
// SPLIT-SAME: -> (tensor<8x4xf32> {pipe.port = #pipe.port<output 0>}, tensor<8x4xf32> {pipe.port = #pipe.port<residual 0>})
// SPLIT-LABEL: func.func @backward_input_3(
// SPLIT-SAME: %[[DY:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<output_gradient 0>},
// SPLIT-SAME: %[[X:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>},
// SPLIT-SAME: %[[R:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<residual 0>})
// SPLIT-SAME: -> (tensor<8x4xf32> {pipe.port = #pipe.port<input_gradient 0>}, tensor<8x4xf32> {pipe.port = #pipe.port<residual 1>})
// SPLIT-SAME: attributes {pipe.function = #pipe.function<backward_input, 3>}
// SPLIT-NEXT: %[[A:.*]] = nn.read @a
// SPLIT-NEXT: %[[S:.*]] = nn.reduce sum %[[DY]]
// SPLIT-NEXT: nn.accumulate %[[S]] to @b
// SPLIT-NEXT: %[[P:.*]] = nn.mul %[[R]], %[[X]]
// SPLIT-NEXT: %[[DX:.*]] = nn.matmul %[[DY]], %[[A]]
// SPLIT-NEXT: return %[[DX]], %[[P]]
// SPLIT-LABEL: func.func @backward_weight_3(
// SPLIT-SAME: %[[X:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>},
// SPLIT-SAME: %[[DY:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<output_gradient 0>},
// SPLIT-SAME: %[[P:[^:]*]]: tensor<8x4xf32> {pipe.port = #pipe.port<residual 1>})
// SPLIT-SAME: attributes {pipe.function = #pipe.function<backward_weight, 3>}
// SPLIT-NEXT: %[[A:.*]] = nn.read @a
// SPLIT-NEXT: %[[H:.*]] = nn.exp %[[X]]
// SPLIT-NEXT: %[[W:.*]] = nn.matmul %[[H]], %[[DY]]
// SPLIT-NEXT: %[[V:.*]] = nn.matmul %[[P]], %[[DY]]
// SPLIT-NEXT: %[[G:.*]] = nn.mul %[[V]], %[[A]]
// SPLIT-NEXT: %[[SUM:.*]] = nn.add %[[W]], %[[G]]
// SPLIT-NEXT: nn.accumulate %[[SUM]] to @a
// SPLIT-NEXT: return
func.func @joint_3(%x: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<8x4xf32> {pipe.port = #pipe.port<output_gradient 0>}) -> (tensor<8x4xf32> {pipe.port = #pipe.port<output 0>}, tensor<8x4xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<joint, 3>} {
  %y = nn.tanh %x : tensor<8x4xf32>
  %r = nn.exp %y : tensor<8x4xf32>
  %a = nn.read @a value {nn.backward} : tensor<4x4xf32>
  %s = nn.reduce sum %dy dims [0] {nn.backward} : tensor<8x4xf32> -> tensor<4xf32>
  nn.accumulate %s to @b gradient {nn.backward} : tensor<4xf32>
  %h = nn.exp %x {nn.backward} : tensor<8x4xf32>
  %p = nn.mul %r, %x {nn.backward} : tensor<8x4xf32>
  %w = nn.matmul %h, %dy "bi,bj->ij" {nn.backward} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %v = nn.matmul %p, %dy "bi,bj->ij" {nn.backward} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %g = nn.mul %v, %a {nn.backward} : tensor<4x4xf32>
  %sum = nn.add %w, %g {nn.backward} : tensor<4x4xf32>
  nn.accumulate %sum to @a gradient {nn.backward} : tensor<4x4xf32>
  %dx = nn.matmul %dy, %a "bj,ij->bi" {nn.backward} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %y, %dx : tensor<8x4xf32>, tensor<8x4xf32>
}

// What a delayed op reads alone is made again of what it is made of element by
// element, where that is less to keep: %g and %m are 48 bytes, %s is 64.
// SPLIT-LABEL: func.func @backward_input_4()
// SPLIT-NEXT: return
// SPLIT-LABEL: func.func @backward_weight_4(
// SPLIT: %[[C:.*]] = nn.cast %{{.*}} : tensor<4x4xbf16> -> tensor<4x4xf32>
// SPLIT: %[[S:.*]] = nn.sub %[[C]], %{{.*}}
// SPLIT: nn.mul %{{.*}}, %[[S]]
func.func @joint_4(%x: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>}, %g: tensor<4x4xbf16> {pipe.port = #pipe.port<input 1>}, %m: tensor<4xf32> {pipe.port = #pipe.port<input 2>}, %dy: tensor<8x4xf32> {pipe.port = #pipe.port<output_gradient 0>}) -> (tensor<8x4xf32> {pipe.port = #pipe.port<output 0>}) attributes {pipe.function = #pipe.function<joint, 4>} {
  %y = nn.tanh %x : tensor<8x4xf32>
  %c = nn.cast %g {nn.backward} : tensor<4x4xbf16> -> tensor<4x4xf32>
  %b = nn.broadcast %m dims [0] {nn.backward} : tensor<4xf32> -> tensor<4x4xf32>
  %s = nn.sub %c, %b {nn.backward} : tensor<4x4xf32>
  %w = nn.matmul %x, %dy "bi,bj->ij" {nn.backward} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %p = nn.mul %w, %s {nn.backward} : tensor<4x4xf32>
  nn.accumulate %p to @a gradient {nn.backward} : tensor<4x4xf32>
  return %y : tensor<8x4xf32>
}
