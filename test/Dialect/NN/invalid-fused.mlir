// RUN: plait-opt %s -split-input-file -verify-diagnostics

func.func @fused_c1_to_c4(%x: tensor<2x4xf32>, %w: tensor<3x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has 'h' in one tensor only}}
  %0 = nn.fused_matmul %x, %w "bh,gf->bf" bias %b : (tensor<2x4xf32>, tensor<3x6xf32>, tensor<6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c5(%x: tensor<2x3x4xf32>, %w: tensor<3x4x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has spec "bsh,shf->bsf", which is not one matmul of two matrices}}
  %0 = nn.fused_matmul %x, %w "bsh,shf->bsf" bias %b : (tensor<2x3x4xf32>, tensor<3x4x6xf32>, tensor<6xf32>) -> tensor<2x3x6xf32>
  return
}

// -----

func.func @fused_c5_order(%x: tensor<4x2xf32>, %w: tensor<6x4xf32>) {
  // expected-error @+1 {{has spec "hb,fh->fb", which is not one matmul of two matrices}}
  %0 = nn.fused_matmul %x, %w "hb,fh->fb" gelu : (tensor<4x2xf32>, tensor<6x4xf32>) -> tensor<6x2xf32>
  return
}

// -----

func.func @fused_c6_none(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{expected bias or gelu, or one of gelu_grad and add and neither of them}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c6_both(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %b: tensor<6xf32>, %g: tensor<2x6xf32>) {
  // expected-error @+1 {{expected bias or gelu, or one of gelu_grad and add and neither of them}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" bias %b gelu_grad %g : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c7_extent(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{has bias 'tensor<5xf32>' for a result 'tensor<2x6xf32>' with 6 columns}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" bias %b : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<5xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c7_columns(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %b: tensor<2x6xf32>) {
  // expected-error @+1 {{has bias 'tensor<2x6xf32>' for a result 'tensor<2x6xf32>' with 6 columns}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" bias %b : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c7_type(%x: tensor<2x4xbf16>, %w: tensor<4x6xbf16>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has bias 'tensor<6xf32>' for a result 'tensor<2x6xbf16>' with 6 columns}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" bias %b : (tensor<2x4xbf16>, tensor<4x6xbf16>, tensor<6xf32>) -> tensor<2x6xbf16>
  return
}

// -----

func.func @fused_c8_result(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has a second result without gelu}}
  %0:2 = nn.fused_matmul %x, %w "bh,hf->bf" bias %b : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> (tensor<2x6xf32>, tensor<2x6xf32>)
  return
}

// -----

func.func @fused_c8_input(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %g: tensor<6x2xf32>) {
  // expected-error @+1 {{takes GELU of 'tensor<6x2xf32>', but has a result 'tensor<2x6xf32>'}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" gelu_grad %g : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<6x2xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c6_add(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %y: tensor<2x6xf32>) {
  // expected-error @+1 {{expected bias or gelu, or one of gelu_grad and add and neither of them}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" gelu add %y : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @fused_c8_addend(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>, %y: tensor<6xf32>) {
  // expected-error @+1 {{adds to 'tensor<6xf32>', but has a result 'tensor<2x6xf32>'}}
  %0 = nn.fused_matmul %x, %w "bh,hf->bf" add %y : (tensor<2x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> tensor<2x6xf32>
  return
}
