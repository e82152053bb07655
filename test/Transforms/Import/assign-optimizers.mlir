// RUN: plait-opt %s --nn-assign-optimizers=optimizers=*.weight=sgd,embed=muon,up.bias=adamw | FileCheck %s
// Without options a model stays as it is.
// RUN: plait-opt %s --nn-assign-optimizers | FileCheck %s --check-prefix=SAME

// The last that matches counts.
// RUN: plait-opt %s --nn-assign-optimizers=optimizers=*=sgd,up.weight=muon-match-rms | FileCheck %s --check-prefix=LAST

// CHECK: nn.parameter @embed : {{.*}}> decay optimizer "muon"{{$}}
// CHECK: nn.parameter @up.bias : {{.*}}> rate 2.000000e+00 optimizer "adamw"{{$}}
// CHECK: nn.parameter @up.weight : {{.*}}> decay optimizer "sgd"{{$}}
// SAME: nn.parameter @embed : {{.*}}> decay{{$}}
// SAME: nn.parameter @up.bias : {{.*}}> rate 2.000000e+00 optimizer "lion"{{$}}
// SAME: nn.parameter @up.weight : {{.*}}> decay{{$}}
// LAST: nn.parameter @embed : {{.*}}> decay optimizer "sgd"{{$}}
// LAST: nn.parameter @up.bias : {{.*}}> rate 2.000000e+00 optimizer "sgd"{{$}}
// LAST: nn.parameter @up.weight : {{.*}}> decay optimizer "muon-match-rms"{{$}}
nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @up.bias : tensor<8xf32> init<mean = 0.0, std = 0.02> rate 2.0 optimizer "lion"
nn.parameter @up.weight : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %x : tensor<2x4xf32>
}
