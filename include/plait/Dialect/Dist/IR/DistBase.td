//===- DistBase.td - The dist dialect and its enumerations ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a file of their own, for dialects whose ops have these attributes, too.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_DIST_IR_DISTBASE_TD
#define PLAIT_DIALECT_DIST_IR_DISTBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def DistDialect : Dialect {
  let name = "dist";
  let summary = "Meshes, shardings and collectives";
  let description = [{
    How tensors lie on a mesh of ranks. Before partitioning, a tensor type is
    global and carries a `#dist.sharding` as its encoding; `dist.reshard` is the
    only op that changes it. Partitioning replaces global types by the types of
    one rank's block and reshards by collectives.
  }];
  let cppNamespace = "::plait::dist";
  let useDefaultAttributePrinterParser = 1;
}

def Dist_ReductionEnum : I32EnumAttr<"Reduction", "how partial values combine", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">,
    I32EnumAttrCase<"Owned", 2, "owned">]> {
  let cppNamespace = "::plait::dist";
  let genSpecializedAttr = 0;
}
def Dist_ReductionAttr : EnumAttr<DistDialect, Dist_ReductionEnum, "reduction"> {
  let assemblyFormat = "$value";
}

def Dist_CollectiveKindParameter
    : AttrParameter<"::plait::CollectiveKind", "a kind of collective"> {
  let parser = "::plait::dist::parseKind($_parser)";
  let printer = "$_printer << ::plait::dist::stringifyKind($_self)";
}

/// The kinds and their words are the table's.
def Dist_CollectiveKindAttr : AttrDef<DistDialect, "CollectiveKind"> {
  let mnemonic = "collective_kind";
  let summary = "What a collective moves";
  let description = [{
    The kinds, their words and what is asked of them are rows of the table in
    plait/Support/Collectives.h: `all_reduce`, `all_gather`, `reduce_scatter`,
    `all_to_all`.
  }];
  let parameters = (ins Dist_CollectiveKindParameter:$value);
  let returnType = "::plait::CollectiveKind";
  let convertFromStorage = "$_self.getValue()";
  let constBuilderCall =
      "::plait::dist::CollectiveKindAttr::get($_builder.getContext(), $0)";
  let assemblyFormat = "$value";
}

#endif // PLAIT_DIALECT_DIST_IR_DISTBASE_TD
