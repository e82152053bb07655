//===- NNDialect.cpp - The nn dialect: registration and attributes ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What TableGen makes takes longer to compile than any other source. It has
// this file, with the attributes, which need its storage classes: who edits an
// op's verifier does not wait for it.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/NNDraw.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

#include "plait/Dialect/NN/IR/NNDialect.cpp.inc"
#include "plait/Dialect/NN/IR/NNEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/NN/IR/NNAttrs.cpp.inc"
#include "plait/Dialect/NN/IR/NNInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "plait/Dialect/NN/IR/NNOps.cpp.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/NN/IR/NNDrawOps.cpp.inc"

void NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/NN/IR/NNAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/NN/IR/NNOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/NN/IR/NNDrawOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// SlotAttr
//===----------------------------------------------------------------------===//

/// A bare word: which there are is the business of those who use it.
Attribute SlotAttr::parse(AsmParser &parser, Type) {
  StringRef name;
  if (parser.parseKeyword(&name))
    return {};
  return SlotAttr::get(parser.getContext(), Slot::get(name));
}

/// Reads the generic form, too, in which the mnemonic stands before it.
void SlotAttr::print(AsmPrinter &printer) const { printer << ' ' << getName(); }

//===----------------------------------------------------------------------===//
// BeginAttr
//===----------------------------------------------------------------------===//

/// `<"tp" * 4, "dp" * 2 of 16>`, or `<>`, which the verifier then refuses with
/// a message of its own.
Attribute BeginAttr::parse(AsmParser &parser, Type) {
  SmallVector<RankTerm> terms;
  auto parseTerm = [&](StringAttr axis) -> ParseResult {
    terms.push_back({axis, 0});
    return failure(parser.parseStar() ||
                   parser.parseInteger(terms.back().scale));
  };
  SMLoc loc = parser.getCurrentLocation();
  int64_t extent = 0, chunks = 0;
  auto parseNumber = [&](StringRef keyword, int64_t &number) -> ParseResult {
    return failure(succeeded(parser.parseOptionalKeyword(keyword)) &&
                   parser.parseInteger(number));
  };
  if (parser.parseLess())
    return {};
  StringAttr axis;
  if (parser.parseOptionalAttribute(axis).has_value()) {
    if (parseTerm(axis))
      return {};
    while (succeeded(parser.parseOptionalComma()))
      if (parser.parseAttribute(axis) || parseTerm(axis))
        return {};
  }
  if (parseNumber("of", extent) || parseNumber("zigzag", chunks) ||
      parser.parseGreater())
    return {};
  return parser.getChecked<BeginAttr>(loc, parser.getContext(), terms, extent,
                                      chunks);
}

void BeginAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(getTerms(), printer, [&](const RankTerm &term) {
    printer << term.axis << " * " << term.scale;
  });
  if (getExtent() != 0)
    printer << (getTerms().empty() ? "of " : " of ") << getExtent();
  if (isReordered())
    printer << " zigzag " << getChunks();
  printer << '>';
}

/// A sum of terms, axis index times scale. An axis that came twice would be one
/// with the sum of its strides.
LogicalResult BeginAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                ArrayRef<RankTerm> terms, int64_t extent,
                                int64_t chunks) {
  // (C1)
  if (terms.empty() && chunks == 0)
    return emitError() << "begin names no axis";
  for (auto [index, term] : llvm::enumerate(terms)) {
    if (term.scale < 1)
      return emitError() << "begin has stride " << term.scale << " for axis "
                         << term.axis << ", expected at least 1";
    for (const RankTerm &earlier : terms.take_front(index))
      if (earlier.axis == term.axis)
        return emitError() << "begin names axis " << term.axis << " twice";
  }
  // (C2)
  if (extent < 0)
    return emitError() << "begin is in a dimension of " << extent
                       << " elements";
  // (C3)
  if (ChunkOrder order = {extent, chunks}; chunks != 0 && !order.hasPairs())
    return emitError() << "begin has " << chunks << " chunks of " << extent
                       << " elements, expected an even number that divides "
                       << "them";
  return success();
}

BeginAttr BeginAttr::get(MLIRContext *context, ChunkOrder order) {
  return get(context, {}, order.extent, order.chunks);
}

BeginAttr nn::localize(BeginAttr whole, MLIRContext *context,
                       ArrayRef<RankTerm> begin, int64_t limit) {
  if (whole && whole.isReordered())
    return BeginAttr::get(context, begin, whole.getExtent(), whole.getChunks());
  return BeginAttr::get(context, begin, limit);
}
