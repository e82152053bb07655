// RUN: plait-opt %s --plait-configure=compress=sign:32 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=SIGN
// RUN: plait-opt %s --plait-configure=compress=topk:32+feedback --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=BITS
// RUN: plait-opt %s --plait-configure=compress=topk:256+keep:3 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=COLUMNS
// RUN: plait-opt %s --plait-configure=compress=topk:32+feedback+rounds:2 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=ROUNDS
// RUN: plait-opt %s --plait-configure=compress=randk:32+feedback+rounds:2 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s --check-prefix=DRAWN

// One bit of each element, with the mean magnitude of those that there are.

// SIGN-LABEL: func.func @reduce_0()
// SIGN: nn.parts {{.*}} over "dp" : tensor<2x32xf32> -> tensor<2x32xf32>
// SIGN: %[[O:.*]] = nn.occupied {{.*}} elements [40] : tensor<2x32xf32>
// SIGN: nn.reduce sum %[[O]] dims [1] : tensor<2x32xf32> -> tensor<2xf32>
// SIGN: %[[D:.*]] = nn.div {{.*}} : tensor<2xf32>
// SIGN: nn.broadcast %[[D]] dims [0] : tensor<2xf32> -> tensor<2x32xf32>
// SIGN: nn.reduce sum {{.*}} dims [1] : tensor<2x32xf32> -> tensor<2xf32>
// SIGN: %[[Q:.*]] = nn.greater {{.*}} : tensor<2x32xf32> -> tensor<2x32xf32>
// SIGN: nn.slice %[[Q]] part 31 of 32 : tensor<2x32xf32> -> tensor<2x1xf32>
// SIGN: nn.pack_bits {{.*}} bits 1 {{.*}} -> tensor<2x1xi32>
// SIGN: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x2x1xi32> -> tensor<2x2x1xi32>
// SIGN: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x2xf32> -> tensor<2x2xf32>
// SIGN: nn.occupied {{.*}} elements [40] : tensor<2x2x32xf32>
// SIGN: nn.reduce sum {{.*}} dims [0] : tensor<2x2x32xf32> -> tensor<2x32xf32>

// One of 32 elements, told by a bit of each, and sent as it is.

// BITS-LABEL: func.func @reduce_0()
// BITS: %[[P:.*]] = nn.parts {{.*}} over "dp" : tensor<2x32xf32> -> tensor<2x32xf32>
// BITS: %[[M:.*]] = nn.keep_top %[[P]] keep 1 block 32 : tensor<2x32xf32>
// BITS: %[[D:.*]] = nn.mul %[[P]], %[[M]]
// BITS: nn.unite %[[D]] over "dp"
// BITS: nn.compact %[[P]] where %[[M]] : tensor<2x32xf32> -> tensor<2x1xf32>
// BITS: nn.pack_bits {{.*}} bits 1 {{.*}} -> tensor<2x1xi32>
// BITS: dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x2x1xi32> -> tensor<2x2x1xi32>
// BITS: %[[V:.*]] = dist.all_gather {{.*}} on @mesh["dp"] dim 0 : tensor<1x2x1xf32> -> tensor<2x2x1xf32>
// BITS: %[[W:.*]] = nn.unpack_bits {{.*}} bits 1 : tensor<2x2x1xi32> -> tensor<2x2x32xf32>
// BITS: %[[E:.*]] = nn.expand %[[V]] where %[[W]] : tensor<2x2x1xf32> -> tensor<2x2x32xf32>
// BITS: nn.reduce sum %[[E]] dims [0] : tensor<2x2x32xf32> -> tensor<2x32xf32>

// Three of 256, told by their columns, and one that is none.

// COLUMNS-LABEL: func.func @reduce_0()
// COLUMNS: %[[M:.*]] = nn.keep_top {{.*}} keep 3 block 256 : tensor<1x256xf32>
// COLUMNS: nn.compact {{.*}} where %[[M]] : tensor<1x256xf32> -> tensor<1x3xf32>
// COLUMNS: nn.find %[[M]] : tensor<1x256xf32> -> tensor<1x4xf32>
// COLUMNS: nn.pack_bits {{.*}} bits 16 {{.*}} -> tensor<1x2xi32>
// COLUMNS: %[[I:.*]] = nn.unpack_bits {{.*}} bits 16 : tensor<2x1x2xi32> -> tensor<2x1x4xf32>
// COLUMNS: %[[N:.*]] = nn.mark %[[I]] : tensor<2x1x4xf32> -> tensor<2x1x256xf32>
// COLUMNS: nn.expand {{.*}} where %[[N]] : tensor<2x1x3xf32> -> tensor<2x1x256xf32>

// The second message is of what the first one leaves, and both are added up.

// ROUNDS-LABEL: func.func @reduce_0()
// ROUNDS: %[[X:.*]] = nn.add {{.*}} : tensor<2x32xf32>
// ROUNDS: nn.parts %[[X]] over "dp"
// ROUNDS: %[[U:.*]] = nn.unite {{.*}} over "dp"
// ROUNDS: %[[L:.*]] = nn.sub %[[X]], %[[U]] : tensor<2x32xf32>
// ROUNDS-COUNT-2: dist.all_gather
// ROUNDS: %[[A:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<2x2x32xf32> -> tensor<2x32xf32>
// ROUNDS: nn.parts %[[L]] over "dp"
// ROUNDS: %[[V:.*]] = nn.unite {{.*}} over "dp"
// ROUNDS: %[[E:.*]] = nn.sub %[[L]], %[[V]] : tensor<2x32xf32>
// ROUNDS-COUNT-2: dist.all_gather
// ROUNDS: %[[B:.*]] = nn.reduce sum {{.*}} dims [0] : tensor<2x2x32xf32> -> tensor<2x32xf32>
// ROUNDS: %[[S:.*]] = nn.add %[[A]], %[[B]] : tensor<2x32xf32>
// ROUNDS: nn.write %[[E]] to {{.*}} error
// ROUNDS: nn.write %[[S]] to {{.*}} gradient

// Each round draws other elements.

// DRAWN-LABEL: func.func @reduce_0()
// DRAWN: nn.draw {{.*}} seed 0
// DRAWN: nn.draw {{.*}} seed 1

#w = #dist.sharding<@mesh, [{}]>
#dw = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#b = #dist.sharding<@mesh, [{}]>
#db = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dc = #dist.sharding<@mesh, [{}], partial = {"dp", "tp"}>
#n = #dist.sharding<@mesh, []>
#dn = #dist.sharding<@mesh, [], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
nn.parameter @w : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #w
nn.parameter @v : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #w
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @c : tensor<40xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @frozen : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #b
nn.parameter @number : tensor<f32> init<mean = 0.0, std = 0.02> sharding #n
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  %f = nn.read @frozen value : tensor<4xf32, #b>
  return
}
func.func @backward_0(%dw: tensor<128xf32, #dw> {pipe.port = #pipe.port<residual 0>}, %db: tensor<4xf32, #db> {pipe.port = #pipe.port<residual 1>}, %dc: tensor<40xf32, #dc> {pipe.port = #pipe.port<residual 2>}, %dn: tensor<f32, #dn> {pipe.port = #pipe.port<residual 3>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<128xf32, #dw>
  nn.accumulate %dw to @v gradient : tensor<128xf32, #dw>
  nn.accumulate %db to @b gradient : tensor<4xf32, #db>
  nn.accumulate %dc to @c gradient : tensor<40xf32, #dc>
  nn.accumulate %dn to @number gradient : tensor<f32, #dn>
  return
}
