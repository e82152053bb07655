//===- NNModelOps.td - Ops at the level at which people name them ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNMODELOPS_TD
#define PLAIT_DIALECT_NN_IR_NNMODELOPS_TD

include "plait/Dialect/NN/IR/NNBase.td"

def NN_MatmulOp : NN_Op<"matmul", [
    Pure, AllElementTypesMatch<["lhs", "rhs"]>, ContractionOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface, ["getFlops", "getWorkShape"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "A general contraction of two tensors";
  let description = [{
    `spec` names the dimensions as einsum does: letters in both operands and the
    result are batch dimensions, letters missing in the result are summed over.

    Constraints:
    - (C1) `spec` reads `lhs,rhs->result` in lower-case letters, with as many
      letters as each tensor has dimensions and no letter twice in one tensor.
    - (C2) a letter has the same extent wherever it stands.
    - (C3) every letter stands in at least two of the three tensors.
    - (C4) the operands have one element type, and the result has it too or is
      f32: products are summed in f32.

    Example:
    ```mlir
    %y = nn.matmul %x, %w "bsh,hf->bsf" : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x8x6xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs, StrAttr:$spec);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs $spec attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool contractsOnly() { return true; }
    bool takesRowPitch() { return true; }
  }];
}

def NN_FusedMatmulOp : NN_Op<"fused_matmul", [
    Pure, AttrSizedOperandSegments, ContractionOpInterface,
    DeclareOpInterfaceMethods<CostedOpInterface, ["getFlops", "getWorkShape"]>,
    AllElementTypesMatch<["lhs", "rhs", "result"]>]> {
  let summary = "A matmul and what its library call does to the result";
  let description = [{
    Of the contraction p, the result is
    - with `bias`: p + bias, the bias repeated along the rows;
    - with `gelu`: gelu(p) or gelu(p + bias), in the tanh form; what GELU is
      taken of is the second result, if there is one;
    - with `gelu_grad`: p · gelu'(x), where x is what GELU was taken of;
    - with `add`: p + y. The result takes y's place in memory, so nobody else
      may read y.

    Constraints:
    - (C1) to (C4) of `nn.matmul`.
    - (C5) the contraction is one matmul of two matrices as they lie in memory:
      apart from extents of 1, the result's letters are those of the rows and
      then those of the columns, the left operand's those of the rows and the
      summed ones, and the right operand's the summed ones and those of the
      columns, in either order.
    - (C6) there is a bias or `gelu`, or else one of `gelu_grad` and `add`.
    - (C7) the bias has the last dimensions of the result, those of the columns.
    - (C8) the second result goes with `gelu`; it, x and y have the result's type.

    Example:
    ```mlir
    %y, %x = nn.fused_matmul %a, %w "bsh,hf->bsf" bias %b gelu : (tensor<2x8x4xf32>, tensor<4x6xf32>, tensor<6xf32>) -> (tensor<2x8x6xf32>, tensor<2x8x6xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs, StrAttr:$spec,
                       Optional<NN_FloatTensor>:$bias, UnitAttr:$gelu,
                       Optional<NN_FloatTensor>:$gelu_input,
                       Optional<NN_FloatTensor>:$addend);
  let results = (outs NN_FloatTensor:$result,
                      Optional<NN_FloatTensor>:$preactivation);
  let assemblyFormat = [{
    $lhs `,` $rhs $spec (`bias` $bias^)? (`gelu` $gelu^)?
    (`gelu_grad` $gelu_input^)? (`add` $addend^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_GroupedMatmulOp : NN_Op<"grouped_matmul", [
    Pure, AllElementTypesMatch<["lhs", "rhs"]>, ContractionOpInterface,
    NN_GroupedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["localizeFactor"]>,
    NN_LibraryCosts,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "A matmul of each row with the matrix that an id names";
  let description = [{
    A contraction of three tensors: `lhs`, `rhs`, and the one-hot code of `ids`, by
    which each row belongs to one of several experts. `spec` names the dimensions
    of lhs, rhs and result as that of `nn.matmul` does. The first letter of one
    tensor, that of experts, stands in no other:
    - in rhs: result[i…, n] = Σ_k lhs[i…, k] · rhs[ids[i…], k, n];
    - in the result: result[e, k, n] is the sum of lhs[i…, k] · rhs[i…, n] over
      all rows i… with ids[i…] = e: the gradient of the matrices.

    The letters i… are those of the ids: of the tensor of rows, which is the result
    in the first form and rhs in the second, all but the last. lhs may lack the
    last ones of them: a token that several experts take is a row of its own for
    each. An id that is of no expert makes a row of zeros, and is added nowhere.
    On a rank that has one block of the experts, `begin` is the first of them.
    `limit`, if not 0, is the number of all experts: those beyond are padding.

    Constraints:
    - (C1) `spec` reads `lhs,rhs->result` in lower-case letters, with as many
      letters as each tensor has dimensions and no letter twice in one tensor.
    - (C2) a letter has the same extent wherever it stands.
    - (C3) the first letter of rhs or of the result, which has three, stands in no
      other tensor; its other two are the last ones of lhs and of the rows, which
      stand in both of these tensors.
    - (C4) lhs has the letters of the ids, or some first ones, and one more.
    - (C5) the ids have the dimensions of the rows but the last.
    - (C6) the operands have one element type, and the result has it too or is
      f32: products are summed in f32.
    - (C7) `limit` is not negative, and given only with `begin`, which has no
      `zigzag`.

    Example:
    ```mlir
    %y = nn.grouped_matmul %x, %w, %ids "bsh,efh->bscf" : (tensor<2x8x4xf32>, tensor<3x6x4xf32>, tensor<2x8x2xi32>) -> tensor<2x8x2x6xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs,
                       NN_IntTensor:$ids, StrAttr:$spec,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       DefaultValuedAttr<I64Attr, "0">:$limit);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `,` $ids $spec attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether the matrices are the result.
    bool makesMatrices();
    /// The letters of lhs, of the rows, of the ids, and of the matrices.
    ::llvm::StringRef getRowLetters();
    ::llvm::StringRef getIdLetters() { return getRowLetters().drop_back(); }
    ::llvm::StringRef getMatrixLetters();
    /// The extents of the experts' matrices, [k, n], or [n, k] if transposed.
    int64_t countExperts() { return getExtent(getMatrixLetters().front()); }
    int64_t getDepth() { return getExtent(getLhsLetters().back()); }
    int64_t getWidth() { return getExtent(getRowLetters().back()); }
    bool isTransposed() {
      return getMatrixLetters().back() == getLhsLetters().back();
    }
  }];
}

def NN_RouteOp : NN_Op<"route", [
    Pure, DeclareOpInterfaceMethods<DecomposableOpInterface,
                                    ["decomposesEarly", "takesWideOperands"]>]> {
  let summary = "The experts that take each token, and their weights";
  let description = [{
    `ids` are the `choices` experts with the highest scores, the highest first and
    of equal ones the lower index. `weights` are their scores:
    - `softmax` or `sigmoid` of the logits of all experts;
    - `chosen_softmax`: the softmax of the chosen logits alone.
    With `bias` the experts are chosen by score + bias, which the weights do not
    have. With `groups` k `of` n, experts lie in n groups of neighbours, and a token
    chooses among those of k of them: the groups in which the two best experts have
    the highest sum, of equal ones the first (DeepSeek-AI 2024, "DeepSeek-V3
    Technical Report"). `normalized`: weights are divided by their sum. `scaled`: then
    multiplied. All of it in f32. The ids have no gradient.

    Decomposed before sharding into comparisons, sums and selections, so that
    splitting and gradients need no rules of their own. What is compared is stored,
    and never computed again: the backward pass has the forward pass's experts.

    Constraints:
    - (C1) the logits have at least one dimension; weights and ids have all but
      the last of them, and the choices.
    - (C2) there are from 1 choice to as many as experts, the last dimension of
      the logits.
    - (C3) the bias has the last dimension of the logits.
    - (C4) `scaled`, if given, is positive.
    - (C5) both numbers of groups come together; the groups have equally many
      experts, at least two each, and the kept ones are not more than there are and
      have as many experts as there are choices.

    Example:
    ```mlir
    %w, %ids = nn.route %logits choices 2 scores softmax normalized : (tensor<2x8x4xf32>) -> (tensor<2x8x2xf32>, tensor<2x8x2xi32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$logits, Optional<NN_FloatTensor>:$bias,
                       I64Attr:$choices, NN_ScoresAttr:$scores,
                       OptionalAttr<I64Attr>:$kept, OptionalAttr<I64Attr>:$groups,
                       UnitAttr:$normalized, OptionalAttr<F32Attr>:$scaled);
  let results = (outs NN_Statistics:$weights, NN_IntTensor:$ids);
  let assemblyFormat = [{
    $logits (`bias` $bias^)? `choices` $choices `scores` $scores
    (`groups` $kept^ `of` $groups)? (`normalized` $normalized^)? (`scaled` $scaled^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

/// What a lookup of rows tells a kernel.
defvar NN_RowsDeclaration = [{
  ::llvm::SmallVector<::plait::RankTerm> getRankBegin() {
    return getBegin() ? ::llvm::SmallVector<::plait::RankTerm>(
                            getBegin()->getTerms())
                      : ::llvm::SmallVector<::plait::RankTerm>();
  }
  int64_t getRowLimit() { return getLimit(); }
}];

def NN_EmbeddingOp : NN_Op<"embedding", NN_IndexCompute # [
    AllElementTypesMatch<["table", "result"]>,
    DeclareOpInterfaceMethods<NN_SelectionOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<FusableOpInterface, ["getFusionRole"]>]> {
  let summary = "Rows of a table";
  let description = [{
    result[…, :] = table[ids[…], :]; the row of an id that the table does not
    have is zero. On a rank that holds one block of the table's rows,
    `begin` is the first of them. `limit`, if not 0, is the number of rows of the
    whole table: those beyond are padding, and no id names them.

    Constraints:
    - (C1) the table has two dimensions, and the result those of the ids and the
      table's second.
    - (C2) `limit` is not negative, and given only with `begin`, which has no
      `zigzag`.
    - (C3) table and result have one element type.

    Example:
    ```mlir
    %0 = nn.embedding %table, %ids : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$table, NN_IntTensor:$ids,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       DefaultValuedAttr<I64Attr, "0">:$limit);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $table `,` $ids attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = NN_RowsDeclaration;
}

def NN_EmbeddingGradOp : NN_Op<"embedding_grad", NN_IndexCompute # [
    DeclareOpInterfaceMethods<FusableOpInterface, ["getFusionRole"]>]> {
  let summary = "The gradient of an embedding's table";
  let description = [{
    result[r, :] is the sum of gradient[…, :] over all positions whose id is r,
    in the order of the positions. `begin` and `limit` as in `nn.embedding`.

    Constraints:
    - (C1) the result has two dimensions, and the gradient those of the ids and
      the result's second.
    - (C2) `limit` is not negative, and given only with `begin`, which has no
      `zigzag`.
    - (C3) the result has the gradient's element type or is f32.

    Example:
    ```mlir
    %0 = nn.embedding_grad %dy, %ids : (tensor<2x8x4xf32>, tensor<2x8xi32>) -> tensor<16x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$gradient, NN_IntTensor:$ids,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       DefaultValuedAttr<I64Attr, "0">:$limit);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $gradient `,` $ids attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = NN_RowsDeclaration;
}

def NN_AttentionOp : NN_Op<"attention", [
    Pure, AttrSizedOperandSegments, AllElementTypesMatch<["query", "key", "value", "out"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor", "orderFactor"]>,
    NN_LibraryCosts,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<NN_DropoutOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface,
                              ["checkLibraryStep", "isLibraryStepByDefault",
                               "addsToLibraryStep"]>]> {
  let summary = "Attention with grouped query heads";
  let description = [{
    Queries are [batch, sequence, group, head, size]: `head` query heads share
    the key and value head of their `group` (one head a group is ordinary
    attention). out = softmax(scale · q kᵀ, over keys not after the query) v;
    `lse` is the logarithm of the softmax's denominator, [batch, group, head,
    sequence], which the backward pass needs. `#nn.score` says what else the
    scores go through, and which keys a query sees: a soft cap, a window, both
    sides. With `starts` it sees no key before starts[b, s], the position at which
    its document begins, where several lie in one sequence; but itself always.

    With `sinks`, each head's denominator has one more term, exp(sinks[g, r]), as of
    a key whose value is zero (Xiao et al. 2023, "Efficient Streaming Language
    Models with Attention Sinks", as GPT-OSS learns them); it is in `lse`, too.

    With `dropout`, the softmax, a tensor [b, g, r, s, t], goes through
    `nn.dropout` with these keys, probability and site before it meets v; `lse`
    is of the softmax before.

    On a rank that holds one block of the queries and all keys, `begin` is the
    position of its first query; the gradients of key and value are then partial
    sums. Queries, and what comes with each, may be stored in the order that it
    says; keys and values are in their own. `group_begin` is the first of its groups, for dropout.

    Constraints:
    - (C1) query and `out` are [b, s, g, r, d], key and value [b, t, g, d], `lse`
      [b, g, r, s].
    - (C2) `sinks` are [g, r].
    - (C3) all but `lse`, `sinks`, `starts` and dropout's keys have one element type.
    - (C4) t is s, or with `begin` at least s, and with `zigzag` as large as the
      order's extent; `group_begin` has no `zigzag`.
    - (C5) dropout's keys, [b], `probability` and `site` come together, with the
      bounds of `nn.dropout`.
    - (C6) `starts` are [b, s].
    - (C7) `bidirectional` attention has no `starts`.

    Example:
    ```mlir
    %o, %lse = nn.attention %q, %k, %v scale 5.0e-01 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$query, NN_FloatTensor:$key,
                       NN_FloatTensor:$value, Optional<NN_IntTensor>:$starts,
                       Optional<NN_FloatTensor>:$sinks,
                       Optional<NN_IntTensor>:$dropout_keys, NN_ScoreAttr:$score,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       OptionalAttr<F64Attr>:$probability,
                       OptionalAttr<I64Attr>:$site,
                       OptionalAttr<NN_BeginAttr>:$group_begin);
  let results = (outs NN_FloatTensor:$out, NN_Statistics:$lse);
  let assemblyFormat = [{
    $query `,` $key `,` $value custom<Score>($score)
    (`starts` $starts^)? (`sinks` $sinks^)?
    (`dropout` $dropout_keys^ `probability` $probability `site` $site)?
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_AttentionGradOp : NN_Op<"attention_grad", [
    Pure, AttrSizedOperandSegments, AllElementTypesMatch<["query", "key", "value", "out", "gradient",
      "query_gradient", "key_gradient", "value_gradient"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor", "orderFactor"]>,
    NN_LibraryCosts,
    DeclareOpInterfaceMethods<DecomposableOpInterface,
                              ["checkLibraryStep", "isLibraryStepByDefault",
                               "addsToLibraryStep"]>]> {
  let summary = "The gradients of attention's operands";
  let description = [{
    The scores are computed again from query, key and `lse` (Dao et al. 2022,
    "FlashAttention", Algorithm 4). `out` and `lse` are the results of the
    `nn.attention`, `gradient` is that of `out`. The score, `starts`, `sinks`,
    `begin`, `group_begin` and dropout as in `nn.attention`. The gradient of sinks,
    a result of those that have any, is -Σ exp(sinks - lse) (gradient · out), over
    batch and queries.

    Constraints:
    - (C1) shapes as for `nn.attention`; the results have those of query, key,
      value and sinks.
    - (C2) there is a gradient of sinks where there are sinks, at least as wide.
    - (C3) all but `lse`, sinks and their gradient, `starts` and dropout's keys have
      one element type.
    - (C4) to (C7) of `nn.attention`.

    Example:
    ```mlir
    %dq, %dk, %dv = nn.attention_grad %q, %k, %v, %o, %lse, %do scale 5.0e-01 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$query, NN_FloatTensor:$key,
                       NN_FloatTensor:$value, NN_FloatTensor:$out,
                       NN_Statistics:$lse, NN_FloatTensor:$gradient,
                       Optional<NN_IntTensor>:$starts,
                       Optional<NN_FloatTensor>:$sinks,
                       Optional<NN_IntTensor>:$dropout_keys, NN_ScoreAttr:$score,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       OptionalAttr<F64Attr>:$probability,
                       OptionalAttr<I64Attr>:$site,
                       OptionalAttr<NN_BeginAttr>:$group_begin);
  let results = (outs NN_FloatTensor:$query_gradient,
                      NN_FloatTensor:$key_gradient,
                      NN_FloatTensor:$value_gradient,
                      Optional<NN_FloatTensor>:$sinks_gradient);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $out `,` $lse `,` $gradient
    custom<Score>($score) (`starts` $starts^)? (`sinks` $sinks^)?
    (`dropout` $dropout_keys^ `probability` $probability `site` $site)?
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_LayerNormOp : NN_Op<"layer_norm", NN_Compute # [
    AllElementTypesMatch<["input", "weight", "bias", "out"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface>]> {
  let summary = "Layer normalisation over the last dimension";
  let description = [{
    out = (x - mean) · rstd · weight + bias with rstd = 1 / sqrt(variance +
    epsilon), the variance being the biased one (Ba et al. 2016). Mean and rstd
    are results because the backward pass needs them.

    Constraints:
    - (C1) `out` has the shape of the input; weight and bias have its last
      dimension, mean and rstd all but it.
    - (C2) `epsilon` is positive.
    - (C3) input, weight, bias and `out` have one element type.

    Example:
    ```mlir
    %y, %mean, %rstd = nn.layer_norm %x, %w, %b epsilon 1.0e-05 : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       NN_FloatTensor:$bias, F32Attr:$epsilon);
  let results = (outs NN_FloatTensor:$out, NN_Statistics:$mean,
                      NN_Statistics:$rstd);
  let assemblyFormat = [{
    $input `,` $weight `,` $bias `epsilon` $epsilon attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_RMSNormOp : NN_Op<"rms_norm", NN_Compute # [
    AllElementTypesMatch<["input", "weight", "out"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface>]> {
  let summary = "Root-mean-square normalisation over the last dimension";
  let description = [{
    out = x · rstd · weight with rstd = 1 / sqrt(mean(x²) + epsilon) (Zhang and
    Sennrich 2019).

    Constraints:
    - (C1) `out` has the shape of the input; the weight has its last dimension,
      rstd all but it.
    - (C2) `epsilon` is positive.
    - (C3) input, weight and `out` have one element type.

    Example:
    ```mlir
    %y, %rstd = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<2x8x4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       F32Attr:$epsilon);
  let results = (outs NN_FloatTensor:$out, NN_Statistics:$rstd);
  let assemblyFormat = [{
    $input `,` $weight `epsilon` $epsilon attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_RopeOp : NN_Op<"rope", [
    Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<ShardableOpInterface,
                              ["localizeFactor", "orderFactor"]>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface>]> {
  let summary = "Rotary position embedding";
  let description = [{
    Rotates the pairs (j, j + d/2) of the last dimension by position · frequency_j
    (Su et al. 2021, in Hugging Face's "rotate half" layout). Dimension 1 is the
    position. `inverse` rotates back, which is the gradient. On a rank that holds
    one block of the positions, `begin` is the first. With `rotated` r only the last
    r/2 pairs turn, with the frequencies of a dimension of r elements, and the others
    are as they were. `scaling` and `yarn` change the frequencies.

    Constraints:
    - (C1) the input has at least three dimensions, the last of even extent.
    - (C2) `theta` is positive.
    - (C3) the numbers of `scaling` are positive, `low` below `high`.
    - (C4) `factor` and `amplitude` of `yarn` are positive, its `first` is below its
      `last`; it does not come with `scaling`.
    - (C5) `rotated`, if given, is even, at least 2, and at most the last dimension.

    Example:
    ```mlir
    %y = nn.rope %x theta 1.0e+04 : tensor<2x8x3x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, F64Attr:$theta,
                       OptionalAttr<NN_RopeScalingAttr>:$scaling,
                       OptionalAttr<NN_YarnAttr>:$yarn,
                       OptionalAttr<I64Attr>:$rotated, UnitAttr:$inverse, OptionalAttr<NN_BeginAttr>:$begin);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `theta` $theta (`scaling` $scaling^)? (`yarn` $yarn^)?
    (`rotated` $rotated^)? (`inverse` $inverse^)? attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

class NN_ActivationOp<string mnemonic> : NN_Op<mnemonic, [
    Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface>]> {
  let results = (outs NN_FloatTensor:$result);
}

def NN_GeluOp : NN_ActivationOp<"gelu"> {
  let summary = "Gaussian error linear unit";
  let description = [{
    x · Φ(x), or with `tanh` the approximation x/2 · (1 + tanh(√(2/π) · (x +
    0.044715 x³))) (Hendrycks and Gimpel 2016).

    Example:
    ```mlir
    %y = nn.gelu %x tanh : tensor<2x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, UnitAttr:$approximate);
  let assemblyFormat = "$input (`tanh` $approximate^)? attr-dict `:` type($result)";
}

def NN_SiluOp : NN_ActivationOp<"silu"> {
  let summary = "Sigmoid linear unit, x · sigmoid(x)";
  let description = [{
    Example:
    ```mlir
    %y = nn.silu %x : tensor<2x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_GeluGradOp : NN_Op<"gelu_grad", [
    Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    DeclareOpInterfaceMethods<CostedOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface>]> {
  let summary = "The gradient of GELU's input";
  let description = [{
    gradient · gelu'(input), of the form of `nn.gelu` that `tanh` names.

    Example: `%dx = nn.gelu_grad %dy, %x tanh : tensor<2x4xf32>`.
  }];
  let arguments = (ins NN_FloatTensor:$gradient, NN_FloatTensor:$input,
                       UnitAttr:$approximate);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $gradient `,` $input (`tanh` $approximate^)? attr-dict `:` type($result)
  }];
}

def NN_SoftmaxCrossEntropyOp : NN_Op<"softmax_cross_entropy", [
    Pure, DeclareOpInterfaceMethods<NN_SelectionOpInterface>,
    DeclareOpInterfaceMethods<DecomposableOpInterface, ["decomposesEarly"]>]> {
  let summary = "The summed loss of predicting the targets";
  let description = [{
    loss is the sum of -log softmax(logits)[target] over all targets that are
    not `ignore`, and count their number. Decomposed before sharding, so that
    splitting the vocabulary needs no rule of its own.

    Constraints:
    - (C1) the logits have the dimensions of the targets and one more.

    Example:
    ```mlir
    %loss, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$logits, NN_IntTensor:$targets,
                       I32Attr:$ignore);
  let results = (outs 0DTensorOf<[F32]>:$loss, 0DTensorOf<[F32]>:$count);
  let assemblyFormat = [{
    $logits `,` $targets `ignore` $ignore attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$logits,
                                 "::mlir::Value":$targets,
                                 "int32_t":$ignore)>];
}

#endif // PLAIT_DIALECT_NN_IR_NNMODELOPS_TD
