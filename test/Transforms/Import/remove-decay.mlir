// RUN: plait-opt %s --nn-remove-decay=parameters=*.bias,embed | FileCheck %s
// Without patterns a model stays as it is.
// RUN: plait-opt %s --nn-remove-decay | FileCheck %s --check-prefix=SAME

// CHECK: nn.parameter @embed : tensor<16x4xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64>{{$}}
// CHECK: nn.parameter @up.bias : tensor<8xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64>{{$}}
// CHECK: nn.parameter @up.weight : tensor<8x4xf32> init<mean = 0.000000e+00 : f64, std = 2.000000e-02 : f64> decay
// SAME-COUNT-3: nn.parameter {{.*}} decay{{$}}
nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @up.bias : tensor<8xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @up.weight : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %x : tensor<2x4xf32>
}
