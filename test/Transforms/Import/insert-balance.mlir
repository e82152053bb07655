// RUN: plait-opt %s --nn-insert-balance=terms=bias=0.001 | FileCheck %s --check-prefix=BIAS
// RUN: plait-opt %s --nn-insert-balance=terms=sequence=0.5,z=0.25,load | FileCheck %s --check-prefix=LOSSES
// Of two numbers of a kind the last one counts, and without terms a model stays as it is.
// RUN: plait-opt %s --nn-insert-balance=terms=bias=7,bias=0.001 | FileCheck %s --check-prefix=BIAS
// RUN: plait-opt %s --nn-insert-balance | FileCheck %s --check-prefix=SAME
// RUN: not plait-opt %s --nn-insert-balance=terms=bias=0.001,pooled=1 2>&1 | FileCheck %s --check-prefix=KIND

// The gradient of the bias is 4 times the choices of an expert less 2, of tokens that count;
// its value adds 0.
// BIAS: nn.parameter @bias : tensor<4xf32> init<mean = 0.000000e+00 : f64, std = 0.000000e+00 : f64> balance 1.000000e-03
// BIAS: %[[BIAS:.*]] = nn.read @bias value
// BIAS: %[[W:.*]], %[[IDS:.*]] = nn.route
// BIAS: nn.reduce sum %[[W]]
// BIAS: %[[VALID:.*]] = nn.valid %arg1 ignore -100 {nn.layer = 3 : i64} : tensor<2x8xi32> -> tensor<2x8xf32>
// BIAS: nn.pick %{{.*}}, %[[IDS]] {nn.layer = 3 : i64} : tensor<2x8x2x4xf32>
// BIAS: nn.scale %{{.*}} by 4.000000e+00 {nn.layer = 3 : i64} : tensor<2x8x4xf32>
// BIAS: nn.scale %[[VALID]] by 2.000000e+00
// BIAS: %[[REPEATED:.*]] = nn.broadcast %[[BIAS]] dims [2]
// BIAS: %[[STOPPED:.*]] = nn.stop_gradient %[[REPEATED]]
// BIAS: nn.sub %[[REPEATED]], %[[STOPPED]]
// BIAS: %[[TERM:.*]] = nn.reduce sum %{{.*}} dims [0, 1] {nn.layer = 3 : i64} : tensor<2x8xf32> -> tensor<f32>
// BIAS: %[[ALL:.*]] = nn.add %{{.*}}, %[[TERM]] : tensor<f32>
// BIAS: return %[[ALL]], %arg4 : tensor<f32>, tensor<f32>

// LOSSES: nn.parameter @bias : {{.*}} rate 0.000000e+00
// LOSSES: func.func @loss({{.*}}) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "balance"}, tensor<f32> {nn.loss = "router_z"}, tensor<f32> {nn.loss = "load"}) {
// LOSSES: %[[SEQUENCE:.*]] = nn.scale %{{.*}} by 1.000000e+00 {nn.layer = 3 : i64} : tensor<f32>
// LOSSES: %[[Z:.*]] = nn.scale %{{.*}} by 2.500000e-01 {nn.layer = 3 : i64} : tensor<f32>
// LOSSES: nn.reduce max
// LOSSES: nn.scale %{{.*}} by 2.000000e+00 {nn.layer = 3 : i64} : tensor<f32>
// LOSSES: %[[FIRST:.*]] = nn.add %{{.*}}, %[[SEQUENCE]] : tensor<f32>
// LOSSES: %[[ALL:.*]] = nn.add %[[FIRST]], %[[Z]] : tensor<f32>
// LOSSES: return %[[ALL]], %arg4, %[[SEQUENCE]], %[[Z]], %{{.*}} :

// SAME: nn.parameter @bias : {{.*}} rate 0.000000e+00
// SAME-NOT: nn.valid

// KIND: error: `balance` "pooled=1" is not bias=RATE, sequence=FACTOR or z=FACTOR with a number of 0 to 1,000,000, or load
nn.parameter @bias : tensor<4xf32> init<mean = 0.0, std = 0.0> rate 0.0
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>, %logits: tensor<2x8x4xf32>, %sum: tensor<f32>, %count: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %bias = nn.read @bias value {nn.layer = 3 : i64} : tensor<4xf32>
  %w, %ids = nn.route %logits bias %bias choices 2 scores sigmoid {nn.layer = 3 : i64} : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
  %s = nn.reduce sum %w dims [0, 1, 2] {nn.layer = 3 : i64} : tensor<2x8x2xf32> -> tensor<f32>
  %loss = nn.add %sum, %s : tensor<f32>
  return %loss, %count : tensor<f32>, tensor<f32>
}
