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
