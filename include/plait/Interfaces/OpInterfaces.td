//===- OpInterfaces.td - Interfaces that passes rely on ----*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dispatch that plait's passes use, so that adding an op means implementing
// the interfaces that apply to it. docs/Developing.md lists the places that name
// an op of the nn dialect all the same, and why.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INTERFACES_OPINTERFACES_TD
#define PLAIT_INTERFACES_OPINTERFACES_TD

include "mlir/IR/OpBase.td"

// The traits are described in OpInterfaces.h.
class PlaitTrait<string name> : NativeOpTrait<name> {
  let cppNamespace = "::plait";
}
def ComparesFloats : PlaitTrait<"ComparesFloats">;
def AddsOperands : PlaitTrait<"AddsOperands">;
def StopsGradient : PlaitTrait<"StopsGradient">;
def JoinsOperands : PlaitTrait<"JoinsOperands">;

def ShardableOpInterface : OpInterface<"ShardableOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    How the op can be split over mesh axes: see FactorRule.h. The interface
    also verifies the shardings in the types of the op against its rule. What the
    op makes of the padding of uneven blocks follows from its other interfaces:
    see Padding.h.
  }];
  let methods = [
    InterfaceMethod<"The factors of the op, for its present (global) types.",
      "::plait::FactorRule", "getFactorRule", (ins)>,
    InterfaceMethod<[{
      Called on the clone with local types that one rank executes, once for
      every split factor: the first element of the rank's block is the sum of
      `begin`, in elements of the whole. Where the blocks of some ranks end in
      padding, elements from `limit` on are; elsewhere it is 0. Ops that compute
      with element indices record it; for all others there is nothing to do.
    }],
      "void", "localizeFactor", (ins "int":$factor,
                                 "::llvm::ArrayRef<::plait::RankTerm>":$begin,
                                 "int64_t":$limit),
      "", "return;">,
    InterfaceMethod<[{
      Called on an op with global types for a factor along which its operands and
      results are stored in another order. Ops that compute with element indices
      along it record that, or say in the rule that they cannot: `inOrder`.
    }],
      "void", "orderFactor", (ins "int":$factor, "::plait::ChunkOrder":$order),
      "", "return;">,
    InterfaceMethod<[{
      Whether combining partial operands after the op gives what combining them
      before it does: then they may be partial, all over the same axes.
    }],
      "bool", "isLinear", (ins), "", "return false;">,
  ];
  let verify = [{ return ::plait::detail::verifyShardings($_op); }];
  // After what the op itself verifies: its factors follow from its attributes.
  let verifyWithRegions = 1;
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    The vector-Jacobian product of the op, in nn ops. `cotangents` has an entry
    per result, null where nothing depends on the result. The method returns an
    entry per operand, null where the operand has no gradient (indices). New ops
    are created with plain types: the differentiation pass gives them shardings,
    and casts what is returned to the type that the operand's gradient has.
    Reading an operand or a result of the op in the matmul makes it a residual.
  }];
  let methods = [
    InterfaceMethod<"The gradients of the operands.",
      "::llvm::SmallVector<::mlir::Value>", "buildVJP",
      (ins "::mlir::OpBuilder &":$builder,
           "::llvm::ArrayRef<::mlir::Value>":$cotangents)>,
  ];
}

def CostedOpInterface : OpInterface<"CostedOpInterface"> {
  let cppNamespace = "::plait";
  let description = "What the op costs, for its present types.";
  let methods = [
    InterfaceMethod<"Floating-point operations; a multiply-add counts two.",
      "int64_t", "getFlops", (ins), "",
      "return ::plait::detail::countResultElements($_op);">,
    InterfaceMethod<"Bytes read and written if the op runs alone.",
      "int64_t", "getBytes", (ins), "",
      "return ::plait::detail::countOperandAndResultBytes($_op);">,
    InterfaceMethod<"What kind of arithmetic it is, and of which shape.",
      "::plait::WorkShape", "getWorkShape", (ins), "", "return {};">,
    InterfaceMethod<[{
      Bytes that a library takes beside operands and results while it computes the
      op in one step on a GPU of `architecture`.
    }],
      "uint64_t", "getLibraryWorkspace",
      (ins "int":$architecture, "bool":$deterministic), "", "return 0;">,
  ];
}

def DecomposableOpInterface : OpInterface<"DecomposableOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op with a name people know that is made of simpler nn ops. `early`
    decompositions run before sharding, because a split inside of the op needs
    communication between its parts (softmax cross-entropy over a split
    vocabulary); the others run on one rank's local graph.
  }];
  let methods = [
    InterfaceMethod<"Whether the op is decomposed before sharding.",
      "bool", "decomposesEarly", (ins), "", "return false;">,
    InterfaceMethod<[{
      Whether a library computes the op in one step, so that it may stay whole:
      nothing if none does, else success, or what is in the way on GPUs of
      `architecture` (80 for sm_80; 0: on processors).
    }],
      "::std::optional<::plait::Status>", "checkLibraryStep",
      (ins "int":$architecture), "", "return ::std::nullopt;">,
    InterfaceMethod<[{
      Whether a step that checkLibraryStep() allows is what computes the op where
      the user says nothing.
    }],
      "bool", "isLibraryStepByDefault", (ins "int":$architecture), "",
      "return architecture > 0;">,
    InterfaceMethod<[{
      Whether the op is a library's step and more, which it decomposes into on all
      devices: then checkLibraryStep() is of that step.
    }],
      "bool", "addsToLibraryStep", (ins), "", "return false;">,
    InterfaceMethod<[{
      Whether its operands are not to be rounded to bf16 where other ops' are.
    }],
      "bool", "takesWideOperands", (ins), "", "return false;">,
    InterfaceMethod<"Builds the replacement for every result.",
      "::llvm::SmallVector<::mlir::Value>", "decompose",
      (ins "::mlir::OpBuilder &":$builder)>,
  ];
}

def ContractionOpInterface : OpInterface<"ContractionOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op that contracts its first two operands, and whose first result has the
    shape of the contraction: nn.matmul, and what does more to its result.
  }];
  let methods = [
    InterfaceMethod<"The dimensions as einsum names them: \"bsh,hf->bsf\".",
      "::llvm::StringRef", "getSpec", (ins)>,
    InterfaceMethod<"Whether the op does nothing but contract two operands.",
      "bool", "contractsOnly", (ins), "", "return false;">,
    InterfaceMethod<[{
      Whether rows of operands and result may lie further apart in memory than
      they are long.
    }],
      "bool", "takesRowPitch", (ins), "", "return false;">,
    InterfaceMethod<[{
      What the contraction is added to. The first result takes its place in
      memory. Null: nothing.
    }],
      "::mlir::Value", "getAddend", (ins), "", "return {};">,
  ];
  let extraSharedClassDeclaration = [{
    ::llvm::StringRef getLhsLetters() {
      return $_op.getSpec().split(',').first;
    }
    ::llvm::StringRef getRhsLetters() {
      return $_op.getSpec().split(',').second.split("->").first;
    }
    ::llvm::StringRef getResultLetters() {
      return $_op.getSpec().split("->").second;
    }
    ::mlir::RankedTensorType getResultType() {
      return ::llvm::cast<::mlir::RankedTensorType>(
          $_op->getResult(0).getType());
    }
    /// The extent of the dimension that `letter` names; 0: none.
    int64_t getExtent(char letter) {
      return ::plait::detail::getExtent($_op.getOperation(), $_op.getSpec(),
                                        letter);
    }
  }];
}

def FusableOpInterface : OpInterface<"FusableOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op that generated kernels compute. Its role says how it maps a cluster's
    iteration space; `emitElement` emits the arithmetic for one element, or for
    a vector of neighbours along the innermost dimension.
  }];
  let methods = [
    InterfaceMethod<"How the op takes part in a kernel.",
      "::plait::FusionRole", "getFusionRole", (ins), "",
      "return ::plait::FusionRole::Elementwise;">,
    InterfaceMethod<[{
      Emits arith/math ops for elements of the result. `operands` are the
      elements of the operands at the same place (already broadcast, or found by
      the index map), scalars or vectors of `context.getLanes()` lanes. For
      reductions: the element that is
      added up (or maximised). The op's dialect depends on the dialects of the
      emitted ops.
    }],
      "::mlir::Value", "emitElement",
      (ins "::plait::ElementContext &":$context,
           "::mlir::ValueRange":$operands)>,
    InterfaceMethod<[{
      Of an op of role Rows: emits all of one row of the result.
    }],
      "void", "emitRow", (ins "::plait::RowContext &":$context), "",
      "llvm_unreachable(\"computes no rows by itself\");">,
    InterfaceMethod<[{
      Of an op that broadcasts: its operand's dimensions among the result's; of
      a reduction those that it reduces. Ascending.
    }],
      "::llvm::ArrayRef<int64_t>", "getDims", (ins), "", "return {};">,
    InterfaceMethod<"Changes those; the types have to follow.",
      "void", "setDims", (ins "::llvm::ArrayRef<int64_t>":$dims), "",
      "llvm_unreachable(\"neither broadcasts nor reduces\");">,
    InterfaceMethod<[{
      Of an op of role Reindex: which elements of the first operand it reads.
    }],
      "::plait::IndexMap", "getIndexMap", (ins), "", "return {};">,
    InterfaceMethod<[{
      Of an op that looks up or scatters rows, or whose index map counts from
      the beginning of the whole: the first row, or index, of the rank.
    }],
      "::llvm::SmallVector<::plait::RankTerm>", "getRankBegin", (ins), "",
      "return {};">,
    InterfaceMethod<[{
      Of an op that looks up or scatters rows: those from here on are padding;
      0 where there is none.
    }],
      "int64_t", "getRowLimit", (ins), "", "return 0;">,
    InterfaceMethod<[{
      The name of an integer attribute of the op whose value a kernel is given
      when it runs, so that ops which differ in nothing else share a kernel;
      empty: there is none.
    }],
      "::llvm::StringRef", "getCallAttrName", (ins), "", "return {};">,
    InterfaceMethod<[{
      Whether the op computes much with the index along each dimension: a loop
      that ran over two of them at once would do that for every element.
    }],
      "bool", "computesIndices", (ins), "", "return false;">,
    InterfaceMethod<[{
      Whether computing the result again within a kernel costs no more than
      passing it on.
    }],
      "bool", "isFree", (ins), "", [{
        return $_op->getNumOperands() == 0 ||
               $_op.getFusionRole() == ::plait::FusionRole::Broadcast;
      }]>,
  ];
}

def ConstantDataOpInterface : OpInterface<"ConstantDataOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op whose f32 result is known when compiling: the rows, along dimension 0,
    of a table, of which each rank may have others.
  }];
  let methods = [
    InterfaceMethod<"The first row of the rank.",
      "::llvm::SmallVector<::plait::RankTerm>", "getRankBegin", (ins), "",
      "return {};">,
    InterfaceMethod<"The numbers of the first `rows` rows, row-major.",
      "::std::vector<float>", "getData", (ins "int64_t":$rows)>,
  ];
}

#endif // PLAIT_INTERFACES_OPINTERFACES_TD
