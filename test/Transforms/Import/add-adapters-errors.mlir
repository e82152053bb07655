// RUN: plait-opt %s '--nn-add-adapters=rank=2 targets=up' -split-input-file -verify-diagnostics

// The end of a name begins at a dot.
nn.parameter @h.gate.weight : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @h.down.weight : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{`lora-targets` "up" names no linear layer; there are: gate, down}}
func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %w = nn.read @h.gate.weight value : tensor<8x8xf32>
  %v = nn.read @h.down.weight value : tensor<8x8xf32>
  %0 = nn.matmul %x, %w "sh,fh->sf" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = nn.matmul %0, %v "sh,fh->sf" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// A table that is the head, too.
nn.parameter @up.weight : tensor<16x8xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{`lora-targets` "up" names 'up', which is not the matrix of a linear layer alone}}
func.func @loss(%tokens: tensor<4xi32>) -> tensor<4x16xf32> {
  %w = nn.read @up.weight value : tensor<16x8xf32>
  %x = nn.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %0 = nn.matmul %x, %w "sh,vh->sv" : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// A matrix of each head.
nn.parameter @up : tensor<2x8x4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{`lora-targets` "up" names 'up', which is not the matrix of a linear layer alone}}
func.func @loss(%x: tensor<4x2x8xf32>) -> tensor<4x2x4xf32> {
  %w = nn.read @up value : tensor<2x8x4xf32>
  %0 = nn.matmul %x, %w "sgh,ghd->sgd" : (tensor<4x2x8xf32>, tensor<2x8x4xf32>) -> tensor<4x2x4xf32>
  return %0 : tensor<4x2x4xf32>
}

// -----

// Columns of a tensor: A of another layer has the others.
nn.parameter @up : tensor<4x8xf32> init<mean = 0.0, std = 0.02> file<name = "up.weight", shape = [4, 16], begin = [0, 8], box = [4, 8]>
// expected-error @+1 {{`lora-targets` "up" names 'up', which is not the matrix of a linear layer alone}}
func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %w = nn.read @up value : tensor<4x8xf32>
  %0 = nn.matmul %x, %w "sh,fh->sf" : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// expected-error @+1 {{is an adapter: the model has them, and `lora` would add others}}
nn.parameter @a : tensor<4x8xf32> init<mean = 0.0, std = 0.02> file<name = "base_model.model.up.lora_A.weight", shape = [4, 8], begin = [0, 0], box = [4, 8]>
func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %w = nn.read @a value : tensor<4x8xf32>
  %0 = nn.matmul %x, %w "sh,fh->sf" : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
