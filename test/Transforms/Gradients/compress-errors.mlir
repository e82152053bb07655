// RUN: plait-opt %s --nn-pack-parameters -split-input-file -verify-diagnostics

// Chunks are neighbours in the whole parameter: a split that cuts one would make
// what is trained depend on the mesh.

#w = #dist.sharding<@mesh, [{}, {"tp"}]>
#dw = #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
  // expected-error @+1 {{is split into runs of 96 elements, which cuts the blocks of 256 that `compress` is given, expected int8:32}}
  nn.parameter @w : tensor<8x192xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x192xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x192xf32, #dw>
    return
  }
}

// -----

// As large a share of smaller chunks.
#w = #dist.sharding<@mesh, [{}, {"tp"}]>
#dw = #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "topk:1024+keep:128">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
  // expected-error @+1 {{cuts the blocks of 1024 that `compress` is given, expected topk:32+keep:4}}
  nn.parameter @w : tensor<8x192xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x192xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x192xf32, #dw>
    return
  }
}

// -----

// No block is as small.
#w = #dist.sharding<@mesh, [{}, {"tp"}]>
#dw = #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:64+feedback">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 4]
  // expected-error @+1 {{is split into runs of 5 elements, which cuts the blocks of 64 that `compress` is given}}
  nn.parameter @w : tensor<8x20xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x20xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x20xf32, #dw>
    return
  }
}

// -----

#w = #dist.sharding<@mesh, [{"tp"}, {}]>
#dw = #dist.sharding<@mesh, [{"tp"}, {}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:32">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
  // expected-error @+1 {{is split into uneven parts, which `compress` int8:32 does not take}}
  nn.parameter @w : tensor<7x32xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<7x32xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<7x32xf32, #dw>
    return
  }
}

// -----

// Rows are whole, and so are chunks.
#w = #dist.sharding<@mesh, [{"tp"}, {}]>
#dw = #dist.sharding<@mesh, [{"tp"}, {}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "int8:128">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
  nn.parameter @w : tensor<8x32xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x32xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x32xf32, #dw>
    return
  }
}

// -----

// What is no sum over samples has no parts.
#w = #dist.sharding<@mesh, [{}, {}]>
module attributes {plait.configuration = #plait.configuration<compress = "int8">} {
  dist.mesh @mesh ["dp"] = [2]
  // expected-error @+1 {{has a gradient that is whole on each replica, of which `compress` int8 has no parts to send}}
  nn.parameter @w : tensor<8x32xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x32xf32, #w> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x32xf32, #w>
    return
  }
}

// -----

// expected-error @+1 {{compress is int8, which takes zero 0 or 1, not 3: zero 3 adds gradients to errors of blocks, which it does not keep}}
module attributes {plait.configuration = #plait.configuration<zero = 3, compress = "int8">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
}

// -----

// Gradients are added to errors.
// expected-error @+1 {{compress is int8, which takes zero 0 or 1, not 2: zero 2 adds gradients to errors of blocks, which it does not keep}}
module attributes {plait.configuration = #plait.configuration<zero = 2, compress = "int8">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
}

// -----

// As many replicas as are asked for.
// expected-error @+1 {{compress is int8+replicas:3, but dp is 2}}
module attributes {plait.configuration = #plait.configuration<compress = "int8+replicas:3">} {
  dist.mesh @mesh ["dp", "tp"] = [2, 2]
}

// -----

// What a rank codes is of consecutive sequences, which groups do not have.
#w = #dist.sharding<@mesh, [{}, {}]>
#dw = #dist.sharding<@mesh, [{}, {}], partial = {"replicate", "dp"}>
// expected-error @+1 {{compress is int8:128, which takes no groups of replicas, but replicate is 2}}
module attributes {plait.configuration = #plait.configuration<compress = "int8:128">} {
  dist.mesh @mesh ["replicate", "dp"] = [2, 2]
  nn.parameter @w : tensor<8x32xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x32xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x32xf32, #dw>
    return
  }
}

// -----

// A rank numbers its blocks by one dimension.
#w = #dist.sharding<@mesh, [{"ep"}, {"tp"}]>
#dw = #dist.sharding<@mesh, [{"ep"}, {"tp"}], partial = {"dp"}>
module attributes {plait.configuration = #plait.configuration<compress = "qsgd8:32">} {
  dist.mesh @mesh ["dp", "ep", "tp"] = [2, 2, 2]
  // expected-error @+1 {{is split along more than one dimension, and `compress` qsgd8:32 draws by a number of each block}}
  nn.parameter @w : tensor<8x64xf32> init<mean = 0.0, std = 0.02> sharding #w
  func.func @backward_0(%dw: tensor<8x64xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x64xf32, #dw>
    return
  }
}
