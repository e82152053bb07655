// RUN: plait-opt %s -split-input-file --dist-assign-shardings | FileCheck %s
// RUN: plait-opt %s -split-input-file --plait-configure='sequence-parallel=true' \
// RUN:   --dist-assign-shardings | FileCheck %s --check-prefix=SEQUENCE

// Two branches of the same input, as attention and MLP in parallel (Black et al.
// 2022): what ranks have of both is added up before they combine it, once.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<64x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @up : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down : tensor<512x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @up2 : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down2 : tensor<512x192xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: module
// CHECK: %[[A:.*]] = nn.matmul %{{.*}} "bsf,fh->bsh" {{.*}} partial = {"tp"}
// CHECK-NOT: dist.reshard %[[A]]
// CHECK: %[[B:.*]] = nn.matmul %{{.*}} "bsf,fh->bsh" {{.*}} partial = {"tp"}
// CHECK-NEXT: %[[SUM:.*]] = nn.add %[[A]], %[[B]] {{.*}} partial = {"tp"}
// CHECK-NEXT: %[[WHOLE:.*]] = dist.reshard %[[SUM]]
// CHECK-NEXT: nn.add %{{.*}}, %[[WHOLE]]
// SEQUENCE-LABEL: module
// SEQUENCE: %[[SUM:.*]] = nn.add %{{.*}} : tensor<2x16x192xf32, #dist.sharding<@mesh, [{}, {}, {}], partial = {"tp"}>>
// SEQUENCE-NEXT: %[[PART:.*]] = dist.reshard %[[SUM]] {{.*}} -> tensor<2x16x192xf32, #dist.sharding<@mesh, [{{.*}}"tp"
// SEQUENCE-NEXT: nn.add %{{.*}}, %[[PART]]
func.func @loss(%x: tensor<2x16xi32>, %y: tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<64x192xf32>
  %0 = nn.embedding %table, %x : (tensor<64x192xf32>, tensor<2x16xi32>) -> tensor<2x16x192xf32>
  %up = nn.read @up value : tensor<192x512xf32>
  %down = nn.read @down value : tensor<512x192xf32>
  %1 = nn.matmul %0, %up "bsh,hf->bsf" : (tensor<2x16x192xf32>, tensor<192x512xf32>) -> tensor<2x16x512xf32>
  %2 = nn.matmul %1, %down "bsf,fh->bsh" : (tensor<2x16x512xf32>, tensor<512x192xf32>) -> tensor<2x16x192xf32>
  %up2 = nn.read @up2 value : tensor<192x512xf32>
  %down2 = nn.read @down2 value : tensor<512x192xf32>
  %3 = nn.matmul %0, %up2 "bsh,hf->bsf" : (tensor<2x16x192xf32>, tensor<192x512xf32>) -> tensor<2x16x512xf32>
  %4 = nn.matmul %3, %down2 "bsf,fh->bsh" : (tensor<2x16x512xf32>, tensor<512x192xf32>) -> tensor<2x16x192xf32>
  %5 = nn.add %2, %4 : tensor<2x16x192xf32>
  %6 = nn.add %0, %5 : tensor<2x16x192xf32>
  %7 = nn.matmul %6, %table "bsh,vh->bsv" : (tensor<2x16x192xf32>, tensor<64x192xf32>) -> tensor<2x16x64xf32>
  %8, %9 = nn.softmax_cross_entropy %7, %y ignore -100 : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>)
  return %8, %9 : tensor<f32>, tensor<f32>
}

// -----

// What one of the branches makes is read twice: each is combined by itself.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<64x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @up : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down : tensor<512x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @up2 : tensor<192x512xf32> init<mean = 0.0, std = 0.02>
nn.parameter @down2 : tensor<512x192xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: module
// CHECK: %[[A:.*]] = nn.matmul %{{.*}} "bsf,fh->bsh"
// CHECK-NEXT: %[[READ:.*]] = dist.reshard %[[A]]
// CHECK: %[[B:.*]] = nn.matmul %{{.*}} "bsf,fh->bsh"
// CHECK-NEXT: %[[OTHER:.*]] = dist.reshard %[[B]]
// CHECK-NEXT: nn.add %[[READ]], %[[OTHER]]
// SEQUENCE-LABEL: module
func.func @loss(%x: tensor<2x16xi32>, %y: tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<64x192xf32>
  %0 = nn.embedding %table, %x : (tensor<64x192xf32>, tensor<2x16xi32>) -> tensor<2x16x192xf32>
  %up = nn.read @up value : tensor<192x512xf32>
  %down = nn.read @down value : tensor<512x192xf32>
  %1 = nn.matmul %0, %up "bsh,hf->bsf" : (tensor<2x16x192xf32>, tensor<192x512xf32>) -> tensor<2x16x512xf32>
  %2 = nn.matmul %1, %down "bsf,fh->bsh" : (tensor<2x16x512xf32>, tensor<512x192xf32>) -> tensor<2x16x192xf32>
  %up2 = nn.read @up2 value : tensor<192x512xf32>
  %down2 = nn.read @down2 value : tensor<512x192xf32>
  %3 = nn.matmul %0, %up2 "bsh,hf->bsf" : (tensor<2x16x192xf32>, tensor<192x512xf32>) -> tensor<2x16x512xf32>
  %4 = nn.matmul %3, %down2 "bsf,fh->bsh" : (tensor<2x16x512xf32>, tensor<512x192xf32>) -> tensor<2x16x192xf32>
  %5 = nn.add %2, %4 : tensor<2x16x192xf32>
  %9 = nn.silu %2 : tensor<2x16x192xf32>
  %6 = nn.add %9, %5 : tensor<2x16x192xf32>
  %7 = nn.matmul %6, %table "bsh,vh->bsv" : (tensor<2x16x192xf32>, tensor<64x192xf32>) -> tensor<2x16x64xf32>
  %8, %10 = nn.softmax_cross_entropy %7, %y ignore -100 : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>)
  return %8, %10 : tensor<f32>, tensor<f32>
}

// -----

// With sequence parallelism what ranks hold of tokens is what counts; what is made
// of the weights of a norm is small, and nobody gathers it.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<64x192xf32> init<mean = 0.0, std = 0.02>
nn.parameter @norm : tensor<192xf32> init<mean = 0.0, std = 0.0>

// SEQUENCE-LABEL: module
// SEQUENCE: %[[SHIFTED:.*]] = nn.shift {{.*}} : tensor<192xf32, #dist.sharding<@mesh, [{}]>>
// SEQUENCE: nn.rms_norm %{{.*}}, %[[SHIFTED]]
func.func @loss(%x: tensor<2x16xi32>, %y: tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<64x192xf32>
  %0 = nn.embedding %table, %x : (tensor<64x192xf32>, tensor<2x16xi32>) -> tensor<2x16x192xf32>
  %norm = nn.read @norm value : tensor<192xf32>
  %1 = nn.shift %norm by 1.0 : tensor<192xf32>
  %2:2 = nn.rms_norm %0, %1 epsilon 1.0e-05 : (tensor<2x16x192xf32>, tensor<192xf32>) -> (tensor<2x16x192xf32>, tensor<2x16xf32>)
  %3 = nn.matmul %2#0, %table "bsh,vh->bsv" : (tensor<2x16x192xf32>, tensor<64x192xf32>) -> tensor<2x16x64xf32>
  %4, %5 = nn.softmax_cross_entropy %3, %y ignore -100 : (tensor<2x16x64xf32>, tensor<2x16xi32>) -> (tensor<f32>, tensor<f32>)
  return %4, %5 : tensor<f32>, tensor<f32>
}
