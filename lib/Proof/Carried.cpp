//===- Carried.cpp - What a plan carries beside its step ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A right step is not yet the model: a run draws tokens below the vocabulary,
// initialises parameters and finds them in files, an export writes the model's
// configuration, and a report divides by its operations. No rule reads what
// these go by, so it is compared here, one by one.
//
//===----------------------------------------------------------------------===//

#include "Carried.h"

#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"

#include "mlir/IR/Builders.h"
#include "mlir/Support/DebugStringHelper.h"

#include <algorithm>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Cuts out what of `text` is around `at`: a file that is carried is long.
static std::string cut(StringRef text, size_t at) {
  constexpr size_t before = 16, most = 48;
  if (text.size() <= most)
    return text.str();
  size_t begin = at < before ? 0 : at - before;
  StringRef part = text.substr(begin, most);
  return ((begin ? "…" : "") + part +
          (begin + part.size() < text.size() ? "…" : ""))
      .str();
}

namespace {
class Carried {
public:
  Carried(ModuleOp claim, ModuleOp plan, Report &report)
      : claim(claim), plan(plan), report(report) {}

  LogicalResult checkModel();
  LogicalResult checkArithmetic();
  LogicalResult checkParameters();

private:
  LogicalResult compare(Operation *op, const Twine &what,
                        const std::string &should, const std::string &is);
  LogicalResult compare(Operation *op, const Twine &what, Attribute should,
                        Attribute is) {
    // Mostly they are: printing takes longer than all else that is compared.
    if (should == is)
      return success();
    auto show = [](Attribute value) {
      return value ? debugString(value) : std::string("none");
    };
    return compare(op, what, show(should), show(is));
  }
  LogicalResult compare(nn::ParameterOp should, nn::ParameterOp is);

  ModuleOp claim, plan;
  Report &report;
};
} // namespace

LogicalResult Carried::compare(Operation *op, const Twine &what,
                               const std::string &should,
                               const std::string &is) {
  if (should == is)
    return success();
  size_t at = std::mismatch(should.begin(),
                            should.begin() + std::min(should.size(), is.size()),
                            is.begin())
                  .first -
              should.begin();
  return report.wrong(op) << what << " is " << cut(is, at)
                          << ", and the model's is " << cut(should, at);
}

/// Name by name, so that the message is of the one that differs.
LogicalResult Carried::checkModel() {
  auto find = [](ModuleOp module) {
    auto known = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
    return known ? known : DictionaryAttr::get(module.getContext());
  };
  DictionaryAttr asked = find(claim), said = find(plan);
  for (DictionaryAttr names : {asked, said})
    for (NamedAttribute entry : names)
      if (failed(compare(
              plan, Twine(nn::kModelAttr) + "'s " + entry.getName().getValue(),
              asked.get(entry.getName()), said.get(entry.getName()))))
        return failure();
  Builder builder(plan.getContext());
  auto count = [&](ModuleOp module) {
    return builder.getF64FloatAttr(getModelFlops(module));
  };
  auto text = [&](ModuleOp module) {
    return builder.getStringAttr(getConfigJson(module));
  };
  return success(
      succeeded(
          compare(plan, "plait.model_flops", count(claim), count(plan))) &&
      succeeded(compare(plan, "plait.config_json", text(claim), text(plan))));
}

/// The fields of the configuration that say what is trained, and not how: once
/// the phases that have read them are past, nothing else ties them to the ops.
/// What a run may set follows from the optimizer.
LogicalResult Carried::checkArithmetic() {
  TrainingConfiguration asked = getConfiguration(claim),
                        said = getConfiguration(plan);
  // Of the plan it is the mesh's.
  asked.compress.replicas = said.compress.replicas;
  auto check = [&](StringRef field, const std::string &should,
                   const std::string &is) {
    return succeeded(
        compare(plan, field + " of its configuration", should, is));
  };
  return success(
      check("optimizer", asked.optimizer, said.optimizer) &&
      check("precision", print(asked.precision), print(said.precision)) &&
      check("reduce_precision", print(asked.reducePrecision),
            print(said.reducePrecision)) &&
      check("compress", print(asked.compress), print(said.compress)) &&
      check("outer", print(asked.outer), print(said.outer)) &&
      check("seq", std::to_string(asked.sequence),
            std::to_string(said.sequence)) &&
      check("global_batch", std::to_string(asked.globalBatch),
            std::to_string(said.globalBatch)));
}

/// Places in files are those of the parameter's name where none is given.
/// Whether the update decays, and of what, is in the update; the flags are what
/// was asked for, and say what is kept of the parameter.
LogicalResult Carried::compare(nn::ParameterOp should, nn::ParameterOp is) {
  std::string name = "@" + is.getSymName().str();
  auto decays = [](nn::ParameterOp parameter) -> std::string {
    return parameter.getDecay() ? "decay" : "no decay";
  };
  auto isUnsaved = [](nn::ParameterOp parameter) -> std::string {
    return parameter->hasAttr(nn::kUnsavedAttr) ? "no" : "yes";
  };
  return success(
      succeeded(compare(is, "the type of " + name, should.getTypeAttr(),
                        is.getTypeAttr())) &&
      succeeded(compare(is, "what " + name + " starts as", should.getInit(),
                        is.getInit())) &&
      succeeded(compare(is, "what " + name + " asks of the update",
                        decays(should), decays(is))) &&
      succeeded(compare(is, "the rate of " + name, should.getRateAttr(),
                        is.getRateAttr())) &&
      succeeded(compare(is, "the optimizer of " + name,
                        should.getOptimizerAttr(), is.getOptimizerAttr())) &&
      succeeded(compare(is, "the balance of " + name, should.getBalanceAttr(),
                        is.getBalanceAttr())) &&
      succeeded(compare(is, "what " + name + " has as columns",
                        should.getMatrixAttr(), is.getMatrixAttr())) &&
      succeeded(compare(is, "where files have " + name, should.getFileAttr(),
                        is.getFileAttr())) &&
      succeeded(compare(is, "whether files have " + name, isUnsaved(should),
                        isUnsaved(is))));
}

/// Parameters are compared in their order, by which a plan and its reference
/// number them. No function need touch a parameter, but files have it all the
/// same.
LogicalResult Carried::checkParameters() {
  auto asked = llvm::to_vector(claim.getOps<nn::ParameterOp>());
  auto said = llvm::to_vector(plan.getOps<nn::ParameterOp>());
  for (auto [index, is] : llvm::enumerate(said)) {
    if (index == asked.size())
      return report.wrong(is) << "the model has no @" << is.getSymName();
    if (failed(compare(is, "the name of parameter " + Twine(index),
                       asked[index].getSymName().str(),
                       is.getSymName().str())) ||
        failed(compare(asked[index], is)))
      return failure();
  }
  if (said.size() < asked.size())
    return report.wrong(plan)
           << "there is no @" << asked[said.size()].getSymName();
  return success();
}

LogicalResult plait::proof::checkCarried(ModuleOp claim, ModuleOp plan,
                                         Report &report) {
  Carried carried(claim, plan, report);
  return success(succeeded(carried.checkModel()) &&
                 succeeded(carried.checkArithmetic()) &&
                 succeeded(carried.checkParameters()));
}
