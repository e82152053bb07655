//===- Muon.cpp - The update of Muon --------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Muon (Jordan et al. 2024) as torch.optim.Muon has it, but in fp32: matrices
// move along their orthogonalised momentum. Which parameters are matrices
// nn-assign-matrices has decided.
//
// Ranks that have parts of a matrix gather what is to be orthogonalised and
// each do all of it, so that the update depends on no mesh.
//
//===----------------------------------------------------------------------===//

#include "../Updates.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using nn::NNBuilder;
using nn::Slot;

namespace {

/// The dimensions of a matrix as a contraction names them. The short side is
/// that of which the products are taken.
struct Letters {
  std::string all;       // of the parameter
  std::string other;     // the same with other letters for the short side
  std::string gram;      // the short side twice
  std::string otherGram; // the second letters of the short side, and third ones
  std::string ends;      // the first and third letters

  Letters(ArrayRef<int64_t> shape, ArrayRef<int64_t> shortSide) {
    char next = 'a';
    for (size_t dim = 0; dim < shape.size(); ++dim)
      all += next++;
    std::string first, second, third;
    other = all;
    for (int64_t dim : shortSide) {
      first += all[dim];
      second += other[dim] = next++;
    }
    for (size_t i = 0; i < shortSide.size(); ++i)
      third += next++;
    gram = first + second;
    otherGram = second + third;
    ends = first + third;
  }
};

/// Updates a matrix; with momentum μ and the gradient g,
/// m = μ m + (1 - μ) g, u = μ m + (1 - μ) g (Nesterov), o = u orthogonalised,
/// w = (1 - η λ) w - η s o, where s follows from the matrix's shape.
class Muon : public UpdateRule {
public:
  Muon(NNBuilder &nn, ScalarReader readScalar, bool matchesRMS)
      : nn(nn), matchesRMS(matchesRMS) {
    rate = readScalar("LearningRate");
    momentum = readScalar("Momentum");
    rest = complement(nn, momentum);
    keep = complement(nn, nn.mul(rate, readScalar("WeightDecay")));
  }

  Update apply(const UpdatedParameter &parameter) override {
    Value g = parameter.gradient;
    Value old = times(nn, parameter.read(Slot::getState("momentum")), momentum,
                      parameter);
    Value share = times(nn, g, rest, parameter);
    Value m = nn.add(old, share);
    Value ahead = times(nn, m, momentum, parameter);
    Value whole = parameter.gather(nn.add(ahead, share));
    Value direction = parameter.scatter(orthogonalize(whole, parameter));
    Value w = parameter.read(Slot::Value);
    if (parameter.decays)
      w = times(nn, w, keep, parameter);
    Value step =
        nn.scale(rate, getRateFactor(parameter.whole, parameter.columns));
    Value delta = times(nn, direction, step, parameter);
    return {nn.sub(w, delta), {m}};
  }

private:
  /// Splits the dimensions into rows and columns, and counts the elements of a
  /// column and of a row.
  static std::pair<SmallVector<int64_t>, SmallVector<int64_t>>
  getSides(ArrayRef<int64_t> shape, ArrayRef<int64_t> columns, double &height,
           double &width) {
    std::pair<SmallVector<int64_t>, SmallVector<int64_t>> sides;
    height = width = 1;
    for (auto [dim, extent] : llvm::enumerate(shape)) {
      bool isColumn = llvm::is_contained(columns, int64_t(dim));
      (isColumn ? sides.second : sides.first).push_back(dim);
      (isColumn ? width : height) *= double(extent);
    }
    return sides;
  }

  /// "original": √max(1, rows / columns), rows being what the layer puts out.
  /// "match_rms_adamw" (Liu et al. 2025): updates as large as AdamW's.
  double getRateFactor(ArrayRef<int64_t> shape, ArrayRef<int64_t> columns) {
    double height, width;
    getSides(shape, columns, height, width);
    return matchesRMS ? 0.2 * std::sqrt(std::max(height, width))
                      : std::sqrt(std::max(1.0, height / width));
  }

  /// Newton-Schulz iterations on x / |x|, whose singular values they bring
  /// near 1: x = a x + (b A + c A²) x with A = x xᵀ, of the short side. Written
  /// as a (x + (b/a A + c/a A²) x), so that what the products need is all that
  /// is stored: a x would be made beside x, a matrix more.
  Value orthogonalize(Value x, const UpdatedParameter &parameter) {
    constexpr int iterations = 5;
    constexpr double a = 3.4445, b = -4.775, c = 2.0315, least = 1e-7;
    double height, width;
    // By the sizes of the parameter, whatever padding the ranks have.
    auto [rows, others] =
        getSides(parameter.whole, parameter.columns, height, width);
    ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
    Letters letters(shape, height > width ? others : rows);
    Value squares = nn.mul(x, x);
    // Rows side by side: a single reduction would be one core's work.
    Value sum = nn.sumAll(nn.sumRows(squares));
    Value norm = nn.unary<nn::SqrtOp>(sum);
    // The larger of the two: of nothing stays nothing.
    Value negative = nn.neg(norm);
    Value bound = nn.fillLike(norm, -least);
    Value size = nn.neg(nn.binary<nn::MinOp>(negative, bound));
    x = nn.div(x, nn.broadcast(size, shape, {}));
    for (int i = 0; i < iterations; ++i) {
      Value gram = nn.matmul(
          x, x, letters.all + "," + letters.other + "->" + letters.gram);
      Value square = nn.matmul(gram, gram,
                               letters.gram + "," + letters.otherGram + "->" +
                                   letters.ends);
      Value linear = nn.scale(gram, b / a);
      Value factor = nn.add(linear, nn.scale(square, c / a));
      Value moved = nn.matmul(
          factor, x, letters.gram + "," + letters.other + "->" + letters.all);
      x = nn.scale(nn.add(x, moved), a);
    }
    return x;
  }

  NNBuilder &nn;
  bool matchesRMS;
  Value rate, momentum, rest, keep;
};

} // namespace

namespace plait {
std::unique_ptr<UpdateRule> createMuon(NNBuilder &nn, ScalarReader readScalar) {
  return std::make_unique<Muon>(nn, readScalar, /*matchesRMS=*/false);
}

std::unique_ptr<UpdateRule> createMuonMatchRMS(NNBuilder &nn,
                                               ScalarReader readScalar) {
  return std::make_unique<Muon>(nn, readScalar, /*matchesRMS=*/true);
}
} // namespace plait
