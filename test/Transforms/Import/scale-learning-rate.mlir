// RUN: plait-opt %s --nn-scale-learning-rate=factors=*.weight=0.5,embed=3,up.bias=1 | FileCheck %s
// Without factors a model stays as it is.
// RUN: plait-opt %s --nn-scale-learning-rate | FileCheck %s --check-prefix=SAME

// The last factor that matches counts, and 1 is none.
// RUN: plait-opt %s --nn-scale-learning-rate=factors=*=7,up.weight=0,embed=1 | FileCheck %s --check-prefix=LAST

// CHECK: nn.parameter @embed : {{.*}}> decay rate 3.000000e+00{{$}}
// CHECK: nn.parameter @up.bias : {{.*}}>{{$}}
// CHECK: nn.parameter @up.weight : {{.*}}> decay rate 5.000000e-01{{$}}
// SAME: nn.parameter @embed : {{.*}}> decay{{$}}
// SAME: nn.parameter @up.bias : {{.*}}> rate 2.000000e+00{{$}}
// SAME: nn.parameter @up.weight : {{.*}}> decay{{$}}
// LAST: nn.parameter @embed : {{.*}}> decay{{$}}
// LAST: nn.parameter @up.bias : {{.*}}> rate 7.000000e+00{{$}}
// LAST: nn.parameter @up.weight : {{.*}}> decay rate 0.000000e+00{{$}}
nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @up.bias : tensor<8xf32> init<mean = 0.0, std = 0.02> rate 2.0
nn.parameter @up.weight : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %x : tensor<2x4xf32>
}
