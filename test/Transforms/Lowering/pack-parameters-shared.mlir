// RUN: plait-opt %s --plait-configure=zero=1 --nn-pack-parameters | FileCheck %s

// Both ranks of pp have @p and @q. The gradient of @q on rank 1 is whole on every
// replica: there is nothing to reduce over dp, and its pack cannot be divided. So it
// is not on rank 0 either, and both ranks reduce over pp the same bytes in the same
// order, @p first.
// CHECK: nn.pack @pack0.0 rank 0 [@p] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
// CHECK: nn.pack @pack0.1 rank 0 [@q] at [0] : tensor<1x32xf32>
// CHECK: nn.pack @pack1.0 rank 1 [@p] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
// CHECK: nn.pack @pack1.1 rank 1 [@q] at [0] : tensor<1x32xf32>
dist.mesh @mesh ["pp", "dp"] = [2, 2]
nn.parameter @p : tensor<6xf32> init<mean = 0.0, std = 0.02>
nn.parameter @q : tensor<6xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: func.func @reduce_0()
// CHECK: dist.reduce_scatter {{.*}} : tensor<2x32xf32>
// CHECK: dist.all_reduce {{.*}}"pp"
// CHECK: nn.write {{.*}} to @pack0.0 reduced
// CHECK-NEXT: nn.read @pack0.1 gradient
// CHECK-NEXT: dist.all_reduce {{.*}}"dp"
// CHECK-NEXT: nn.write {{.*}} to @pack0.1 gradient
// CHECK: dist.all_reduce {{.*}}"pp"
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  %p = nn.read @p gradient : tensor<6xf32>
  %1 = dist.all_reduce %p on @mesh["dp"] sum : tensor<6xf32> -> tensor<6xf32>
  %2 = dist.all_reduce %1 on @mesh["pp"] sum members [0, 1] ordered : tensor<6xf32> -> tensor<6xf32>
  nn.write %2 to @p gradient : tensor<6xf32>
  %q = nn.read @q gradient : tensor<6xf32>
  %3 = dist.all_reduce %q on @mesh["dp"] sum : tensor<6xf32> -> tensor<6xf32>
  %4 = dist.all_reduce %3 on @mesh["pp"] sum members [0, 1] ordered : tensor<6xf32> -> tensor<6xf32>
  nn.write %4 to @q gradient : tensor<6xf32>
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %0 = nn.read @p value : tensor<6xf32>
  %1 = nn.read @p gradient : tensor<6xf32>
  %2 = nn.sub %0, %1 : tensor<6xf32>
  nn.write %2 to @p value : tensor<6xf32>
  %3 = nn.read @q value : tensor<6xf32>
  %4 = nn.read @q gradient : tensor<6xf32>
  %5 = nn.sub %3, %4 : tensor<6xf32>
  nn.write %5 to @q value : tensor<6xf32>
  return
}

// CHECK-LABEL: func.func @reduce_1()
// CHECK: dist.reduce_scatter {{.*}} : tensor<2x32xf32>
// CHECK: dist.all_reduce {{.*}}"pp"
// CHECK: nn.write {{.*}} to @pack1.0 reduced
// CHECK-NEXT: nn.read @pack1.1 gradient
// CHECK-NEXT: dist.all_reduce {{.*}}"pp"
func.func @reduce_1() attributes {pipe.function = #pipe.function<reduce, 1>} {
  %p = nn.read @p gradient : tensor<6xf32>
  %1 = dist.all_reduce %p on @mesh["dp"] sum : tensor<6xf32> -> tensor<6xf32>
  %2 = dist.all_reduce %1 on @mesh["pp"] sum members [0, 1] ordered : tensor<6xf32> -> tensor<6xf32>
  nn.write %2 to @p gradient : tensor<6xf32>
  %q = nn.read @q gradient : tensor<6xf32>
  %3 = dist.all_reduce %q on @mesh["pp"] sum members [0, 1] ordered : tensor<6xf32> -> tensor<6xf32>
  nn.write %3 to @q gradient : tensor<6xf32>
  return
}
func.func @optimizer_1() attributes {pipe.function = #pipe.function<optimizer, 1>} {
  %0 = nn.read @p value : tensor<6xf32>
  %1 = nn.read @p gradient : tensor<6xf32>
  %2 = nn.sub %0, %1 : tensor<6xf32>
  nn.write %2 to @p value : tensor<6xf32>
  %3 = nn.read @q value : tensor<6xf32>
  %4 = nn.read @q gradient : tensor<6xf32>
  %5 = nn.sub %3, %4 : tensor<6xf32>
  nn.write %5 to @q value : tensor<6xf32>
  return
}
