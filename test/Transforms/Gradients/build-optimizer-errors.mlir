// RUN: plait-opt %s --nn-build-optimizer -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh}}
module {
}

// -----

// expected-error @+1 {{stage 0 does not accumulate @loss_sum}}
module {
  dist.mesh @mesh ["tp"] = [2]
}

// -----

#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{has a gradient but no sharding}}
nn.parameter @w : tensor<f32> init<mean = 0.0, std = 0.02>
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @backward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  nn.accumulate %x to @w gradient : tensor<f32, #s>
  return
}

// -----

#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
nn.accumulator @loss_sum : tensor<f32>
func.func @f(%x: tensor<f32, #s>) {
  // expected-error @+1 {{accumulates in @f, which belongs to no stage}}
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  return
}

// -----

#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["tp"] = [2]
nn.accumulator @loss_sum : tensor<f32>
func.func @forward_0(%x: tensor<f32> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // expected-error @+1 {{adds 'tensor<f32>', which has no sharding}}
  nn.accumulate %x to @loss_sum value : tensor<f32>
  return
}

//===----------------------------------------------------------------------===//
// Packs that were made by hand
//===----------------------------------------------------------------------===//

// -----

#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["dp"] = [2]
// expected-error @+1 {{has members @a and @b, which are reduced, counted or updated differently}}
nn.pack @pack rank 0 [@a, @b] at [0, 32] : tensor<1x64xf32>
nn.parameter @a : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @b : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%p: tensor<32xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %w: tensor<32xf32, #v> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %p to @a gradient : tensor<32xf32, #dv>
  nn.accumulate %w to @b gradient : tensor<32xf32, #v>
  return
}

// -----

#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["dp"] = [2]
// expected-error @+1 {{has members @a and @frozen, which are reduced, counted or updated differently}}
nn.pack @pack rank 0 [@a, @frozen] at [0, 32] : tensor<1x64xf32>
nn.parameter @a : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.parameter @frozen : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%p: tensor<32xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %w: tensor<32xf32, #v> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %p to @a gradient : tensor<32xf32, #dv>
  return
}

// -----

#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["dp"] = [2]
// expected-error @+1 {{has member @a, whose value, gradient and state are split differently}}
nn.pack @pack rank 0 [@a] at [0] : tensor<1x32xf32>
nn.parameter @a : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%p: tensor<32xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %w: tensor<32xf32, #dp> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %w to @a gradient : tensor<32xf32, #dp>
  return
}

// -----

#v = #dist.sharding<@mesh, [{}]>
#dv = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#s = #dist.sharding<@mesh, []>
dist.mesh @mesh ["dp"] = [2]
// expected-error @+1 {{is divided over axis "dp", but not all ranks along it can update @a by rows}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
nn.parameter @a : tensor<32xf32> init<mean = 0.0, std = 0.02> sharding #v
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %x to @loss_sum value : tensor<f32, #s>
  nn.accumulate %x to @token_count value : tensor<f32, #s>
  return
}
func.func @backward_0(%p: tensor<32xf32, #dv> {pipe.port = #pipe.port<residual 0>}, %w: tensor<32xf32, #v> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %w to @a gradient : tensor<32xf32, #v>
  return
}

// -----

// Chunks are rows of packs.
#s = #dist.sharding<@mesh, []>
#w = #dist.sharding<@mesh, [{}, {}]>
#dw = #dist.sharding<@mesh, [{}, {}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8">} {
  dist.mesh @mesh ["dp"] = [2]
  // expected-error @+1 {{is split in one way and its gradient in another, which cannot be compressed}}
  nn.parameter @w : tensor<8x32xf32> init<mean = 0.0, std = 0.02> sharding #w
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @backward_0(%x: tensor<f32, #s> {pipe.port = #pipe.port<residual 0>}, %dw: tensor<8x32xf32, #dw> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %x to @loss_sum value : tensor<f32, #s>
    nn.accumulate %x to @token_count value : tensor<f32, #s>
    nn.accumulate %dw to @w gradient : tensor<8x32xf32, #dw>
    return
  }
}

// -----

// Rows that replicas cannot add up as many of each.
#w = #dist.sharding<@mesh, [{}]>
#dw = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:32+both">} {
  dist.mesh @mesh ["dp"] = [2]
  nn.parameter @w : tensor<70xf32> init<mean = 0.0, std = 0.02> sharding #w
  // expected-error @+1 {{has 3 rows in other parts than those that `compress` int8:32+both adds up over dp of 2}}
  nn.pack @pack rank 0 [@w] at [0] : tensor<3x32xf32>
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
    nn.accumulate %loss to @token_count value : tensor<f32, #loss>
    return
  }
  func.func @backward_0(%dw: tensor<70xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<70xf32, #dw>
    return
  }
}

// -----

// What is kept of rows is divided.
#w = #dist.sharding<@mesh, [{}]>
#dw = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:32+feedback+both">} {
  dist.mesh @mesh ["dp"] = [2]
  nn.parameter @w : tensor<70xf32> init<mean = 0.0, std = 0.02> sharding #w
  // expected-error @+1 {{has 4 rows in other parts than those that `compress` int8:32+feedback+both adds up over dp of 2}}
  nn.pack @pack rank 0 [@w] at [0] : tensor<4x32xf32>
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
    nn.accumulate %loss to @token_count value : tensor<f32, #loss>
    return
  }
  func.func @backward_0(%dw: tensor<70xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<70xf32, #dw>
    return
  }
}

// -----

// No row is added up by one of the replicas.
#w = #dist.sharding<@mesh, [{}]>
#dw = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:32+feedback">} {
  dist.mesh @mesh ["dp"] = [2]
  nn.parameter @w : tensor<70xf32> init<mean = 0.0, std = 0.02> sharding #w
  // expected-error @+1 {{has 4 rows in other parts than those that `compress` int8:32+feedback adds up over dp of 2}}
  nn.pack @pack rank 0 [@w] at [0] divided on @mesh["dp"] sums : tensor<4x32xf32>
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
    nn.accumulate %loss to @token_count value : tensor<f32, #loss>
    return
  }
  func.func @backward_0(%dw: tensor<70xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<70xf32, #dw>
    return
  }
}
