//===- GemmRows.cpp - Some rows of a GEMM ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each element of a product is one sum, which some rows have like the whole:
// the bits are the same.
//
//===----------------------------------------------------------------------===//

#include "GemmRows.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

bool plait::hasDenseRows(MemoryAttr memory, int64_t rows, int64_t stride,
                         Type type) {
  return memory.getBytes() == rows * stride * type.getIntOrFloatBitWidth() / 8;
}

bool plait::hasRows(GemmOp gemm) {
  int64_t rows = gemm.getM();
  MemoryAttr input = gemm.getGeluInputAttr();
  return gemm.getBatchSizes().empty() && gemm.getAStrides()[1] == 1 &&
         hasDenseRows(gemm.getA(), rows, gemm.getAStrides()[0],
                      gemm.getType()) &&
         hasDenseRows(gemm.getC(), rows, gemm.getCStrides()[0],
                      gemm.getCType()) &&
         (!input || hasDenseRows(input, rows, gemm.getN(), gemm.getType()));
}

GemmOp plait::createRows(OpBuilder &builder, GemmOp whole, int64_t first,
                         int64_t rows) {
  auto own = cast<GemmOp>(builder.clone(*whole));
  auto getRows = [&](MemoryAttr memory, int64_t stride, Type type,
                     int64_t bytes) {
    return memory.getPart(first * stride * type.getIntOrFloatBitWidth() / 8,
                          bytes);
  };
  own.setM(rows);
  own.setAAttr(getRows(whole.getA(), whole.getAStrides()[0], whole.getType(),
                       own.countABytes()));
  own.setCAttr(getRows(whole.getC(), whole.getCStrides()[0], whole.getCType(),
                       own.countCBytes()));
  if (MemoryAttr input = whole.getGeluInputAttr())
    own.setGeluInputAttr(
        getRows(input, whole.getN(), whole.getType(),
                input.getBytes() / int64_t(whole.getM()) * rows));
  return own;
}
