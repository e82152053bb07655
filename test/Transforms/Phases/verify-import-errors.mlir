// RUN: plait-opt %s --plait-verify-phase -split-input-file -verify-diagnostics

// expected-error @+1 {{has no function @loss of a loss and a number of targets}}
module {
}

// -----

//===----------------------------------------------------------------------===//
// (L1) it only computes
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    %zero = nn.fill 0.0 : tensor<16x8xf32>
    // expected-error @+1 {{'nn.write' op stores or has effects that are not known, but @loss only computes}}
    nn.write %zero to @embed value : tensor<16x8xf32>
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    %zero = nn.fill 0.0 : tensor<16x8xf32>
    // expected-error @+1 {{'nn.accumulate' op stores}}
    nn.accumulate %zero to @embed gradient : tensor<16x8xf32>
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'func.call' op stores or has effects that are not known}}
    func.call @loss(%tokens, %targets) : (tensor<2x4xi32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'nn.read' op reads the gradient of @embed, but @loss reads values of parameters only}}
    %g = nn.read @embed gradient : tensor<16x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'nn.read' op reads the moment1 of @embed, but @loss reads values of parameters only}}
    %g = nn.read @embed moment1 : tensor<16x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// (L1) each op is of whole tensors, and says how it splits
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'nn.rotate_half' op does not say how it splits over ranks, as each op of @loss has to}}
    %r = nn.rotate_half %x : tensor<2x4x8xf32>
    %y = nn.add %x, %r : tensor<2x4x8xf32>
    %logits = nn.matmul %y, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'arith.constant' op does not say how it splits over ranks}}
    %k = arith.constant dense<1.0> : tensor<2x4x8xf32>
    %y = nn.add %x, %k : tensor<2x4x8xf32>
    %logits = nn.matmul %y, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    // expected-error @+1 {{'nn.rope' op computes what a rank has, from #nn.begin<"tp" * 4> on, but @loss computes whole tensors}}
    %y = nn.rope %x theta 1.0e+04 {begin = #nn.begin<"tp" * 4>} : tensor<2x4x8xf32>
    %logits = nn.matmul %y, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// (L2) what reaches what
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-warning @+1 {{@other is not trained: the loss that @loss returns does not depend on it}}
  nn.parameter @other : tensor<8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

// It is read, but what is made of it goes nowhere.
module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-warning @+1 {{@other is not trained: the loss that @loss returns does not depend on it}}
  nn.parameter @other : tensor<8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %other = nn.read @other value : tensor<8xf32>
    %dead = nn.exp %other : tensor<8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

// The two are mistaken for each other.
module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    // expected-error @+1 {{'nn.read' op reaches the number of targets, but @loss returns the loss first and the number second, which depends on no parameter}}
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %n, %s : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    // expected-error @+1 {{'nn.fill' op is the number of targets, which has to be positive}}
    %zero = nn.fill 0.0 : tensor<f32>
    return %s, %zero : tensor<f32>, tensor<f32>
  }
}

// -----

module {
  // expected-error @+1 {{'func.func' op returns a loss that depends on no parameter}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %x = nn.fill 1.0 : tensor<f32>
    return %x, %x : tensor<f32>, tensor<f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// (L3) what ids select from
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 17 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    // expected-error @+1 {{'nn.embedding' op selects from 'tensor<16x8xf32>', which has 16 entries for a vocabulary of 17 (plait.model)}}
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

// The table is large enough, the classes are not.
module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 17 : i64}} {
  nn.parameter @embed : tensor<17x8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @head : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<17x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<17x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %head = nn.read @head value : tensor<16x8xf32>
    %logits = nn.matmul %x, %head "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    // expected-error @+1 {{'nn.softmax_cross_entropy' op selects from 'tensor<2x4x16xf32>', which has 16 entries for a vocabulary of 17}}
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %ids = nn.iota along 0 : tensor<17xi32>
    // expected-error @+1 {{'nn.embedding' op selects 17 positions from 'tensor<16x8xf32>', which has 16}}
    %positions = nn.embedding %e, %ids : (tensor<16x8xf32>, tensor<17xi32>) -> tensor<17x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// (L4) keys are dropout's, starts are attention's
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %keys: tensor<2xi32> {nn.keys}, %starts: tensor<2x4xi32> {nn.starts}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    // expected-error @+1 {{'nn.embedding' op uses argument 3 of @loss, the starts of documents, which only attention does}}
    %x = nn.embedding %e, %starts : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has argument 2 of type 'tensor<2xi32>', which does not say what it is}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has argument 2 of type 'tensor<2xi32>', which does not say what it is}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xi32> {nn.keys, nn.starts}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has argument 2 of type 'tensor<2x4xi32>', expected 'i32' and as its dimensions the batch of the tokens}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xi32> {nn.keys}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has argument 2 of type 'tensor<2x4xf32>', expected 'i32' and as its dimensions batch and sequence of the tokens}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xf32> {nn.starts}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has two arguments with "nn.keys"}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xi32> {nn.keys}, %b: tensor<2xi32> {nn.keys}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{has attribute "nn.keys" = 1 : i64 on argument 2}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xi32> {nn.keys = 1}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %keys: tensor<2xi32> {nn.keys}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %y = nn.dropout %x, %keys probability 0.1 site 0 : tensor<2x4x8xf32>, tensor<2xi32>
    // expected-error @+1 {{'nn.embedding' op uses argument 2 of @loss, the keys, which only dropout does}}
    %z = nn.embedding %e, %keys : (tensor<16x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
    %logits = nn.matmul %y, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// (P8) functions beside it
//===----------------------------------------------------------------------===//

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{has 0 blocks, expected a body of one}}
  func.func private @beside(tensor<4xf32>)
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{has 2 blocks, expected a body of one}}
  func.func @beside() {
    return
  ^other:
    return
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{value of type 'i32' in @beside, expected tensors of static shape only}}
  func.func @beside(%number: i32) {
    return
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{value of type 'tensor<?xf32>' in @beside}}
  func.func @beside(%x: tensor<?xf32>) {
    return
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 2 of type 'tensor<2x4xf32>', which does not say what it is: expected one of nn.keys, nn.starts, nn.features = "NAME", nn.context = "NAME"}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 2 of type 'tensor<2x4xf32>' named "a b", expected at most 32 letters, digits and underscores}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xf32> {nn.features = "a b"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 2 of type 'tensor<2x4xf32>', which does not say what it is}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xf32> {nn.features = "a", nn.context = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 2 of type 'tensor<2x3xf32>', expected 'f32' and as its first dimensions batch and sequence of the tokens, 'tensor<2x4xi32>'}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x3xf32> {nn.features = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 2 of type 'tensor<4x2xf32>', expected 'f32' and as its first dimensions the batch of the tokens}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<4x2xf32> {nn.context = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{expected 'f32' and as its first dimensions}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2x4xbf16> {nn.context = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has two float inputs named "a"}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xf32> {nn.context = "a"}, %b: tensor<2xf32> {nn.context = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has argument 0 with nn.features, but the first two are tokens and targets}}
  func.func @loss(%tokens: tensor<2x4xi32> {nn.features = "a"}, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has 17 float inputs, expected at most 16}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a0: tensor<2xf32> {nn.context = "a0"}, %a1: tensor<2xf32> {nn.context = "a1"}, %a2: tensor<2xf32> {nn.context = "a2"}, %a3: tensor<2xf32> {nn.context = "a3"}, %a4: tensor<2xf32> {nn.context = "a4"}, %a5: tensor<2xf32> {nn.context = "a5"}, %a6: tensor<2xf32> {nn.context = "a6"}, %a7: tensor<2xf32> {nn.context = "a7"}, %a8: tensor<2xf32> {nn.context = "a8"}, %a9: tensor<2xf32> {nn.context = "a9"}, %a10: tensor<2xf32> {nn.context = "a10"}, %a11: tensor<2xf32> {nn.context = "a11"}, %a12: tensor<2xf32> {nn.context = "a12"}, %a13: tensor<2xf32> {nn.context = "a13"}, %a14: tensor<2xf32> {nn.context = "a14"}, %a15: tensor<2xf32> {nn.context = "a15"}, %a16: tensor<2xf32> {nn.context = "a16"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op has attribute "nn.feature" = "a" on argument 2, expected nn.keys, nn.starts, nn.features = "NAME", nn.context = "NAME"}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>, %a: tensor<2xf32> {nn.feature = "a"}) -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op returns result 2 without a name, expected nn.loss = "NAME" of at most 32 letters, digits and underscores}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n, %s : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op returns result 2 without a name, expected nn.loss = "NAME" of at most 32 letters, digits and underscores}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "z loss"}) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n, %s : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op returns two losses named "z"}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "z"}, tensor<f32> {nn.loss = "z"}) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n, %s, %s : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op returns 14 named losses, expected at most 13}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "z0"}, tensor<f32> {nn.loss = "z1"}, tensor<f32> {nn.loss = "z2"}, tensor<f32> {nn.loss = "z3"}, tensor<f32> {nn.loss = "z4"}, tensor<f32> {nn.loss = "z5"}, tensor<f32> {nn.loss = "z6"}, tensor<f32> {nn.loss = "z7"}, tensor<f32> {nn.loss = "z8"}, tensor<f32> {nn.loss = "z9"}, tensor<f32> {nn.loss = "z10"}, tensor<f32> {nn.loss = "z11"}, tensor<f32> {nn.loss = "z12"}, tensor<f32> {nn.loss = "z13"}) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @loss.z : tensor<f32> init<mean = 0.0, std = 0.5>
  // expected-error @+1 {{'func.func' op returns a loss named "z", but the module has a symbol @loss.z already, which is to add it up}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>, tensor<f32> {nn.loss = "z"}) {
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n, %s : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

// -----

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  // expected-error @+1 {{'func.func' op has several blocks, expected one}}
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %0 = nn.fill 1.0 : tensor<f32>
    return %0, %0 : tensor<f32>, tensor<f32>
  ^bb1:
    return %0, %0 : tensor<f32>, tensor<f32>
  }
}
