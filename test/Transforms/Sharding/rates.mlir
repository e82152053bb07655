// RUN: plait-opt %s --dist-assign-shardings | FileCheck %s --check-prefix=FAST
// RUN: sed 's/bandwidth = 4.0e+11/bandwidth = 1.0e+08/' %s > %t.slow.mlir
// RUN: plait-opt %t.slow.mlir --dist-assign-shardings | FileCheck %s --check-prefix=SLOW
// RUN: sed 's/axis = "tp"/axis = "dp"/' %s > %t.none.mlir
// RUN: not plait-opt %t.none.mlir --dist-assign-shardings 2>&1 | FileCheck %s --check-prefix=NONE

// The cluster's rates decide. Two linears, one after the other, of many tokens and
// features: over fast links each rank computes half of them and the sum is
// reduced. Over slow ones the ranks keep half of each weight, gather it, which is
// less than the sum, and all compute everything.
module attributes {plait.cluster = #plait.cluster<name = "two", device = "d", nodes = 1, devices_per_node = 2, memory = 100, reserved = 1, peak_flops = 1.0e+15 : f64,
    rates = <gemm_flops = 7.0e+14 : f64, memory_bandwidth = 3.0e+12 : f64, links = [
      #plait.link<axis = "tp", latency = 0.0 : f64, bandwidth = 4.0e+11 : f64>]>>} {
dist.mesh @mesh ["tp"] = [2]
// FAST: nn.parameter @up {{.*}} sharding #dist.sharding<@mesh, [{}, {"tp"}]>
// FAST: nn.parameter @down {{.*}} sharding #dist.sharding<@mesh, [{"tp"}, {}]>
// FAST: nn.matmul {{.*}} partial = {"tp"}
nn.parameter @up : tensor<1024x4096xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down : tensor<4096x1024xf32> init<mean = 0.0, std = 0.02>
// SLOW-LABEL: func.func @loss
// SLOW-NOT: partial
// SLOW: return
// NONE: error: 'builtin.module' op has rates without a link along axis "tp"
func.func @loss(%x: tensor<32768x1024xf32>) -> tensor<32768x1024xf32> {
  %up = nn.read @up value : tensor<1024x4096xf32>
  %0 = nn.matmul %x, %up "bi,ij->bj" : (tensor<32768x1024xf32>, tensor<1024x4096xf32>) -> tensor<32768x4096xf32>
  %down = nn.read @down value : tensor<4096x1024xf32>
  %1 = nn.matmul %0, %down "bj,jk->bk" : (tensor<32768x4096xf32>, tensor<4096x1024xf32>) -> tensor<32768x1024xf32>
  return %1 : tensor<32768x1024xf32>
}
}
