//===- FileLayout.cpp - Parameters in the files of a model ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which tensors a parameter lies in follows from its name (listTensors()), and,
// of one that is tied, from what the files have.
//
//===----------------------------------------------------------------------===//

#include "FileLayout.h"

#include "AdapterFolder.h"
#include "plait/Plan/Adapters.h"
#include "plait/Runtime/Slices.h"
#include "plait/Runtime/Weights.h"

#include <set>

using namespace plait;
using namespace plait::runtime;

static std::span<const int64_t>
shapeOf(const flatbuffers::Vector<int64_t> &shape) {
  return {shape.data(), shape.size()};
}

bool runtime::isSaved(const fb::Plan &plan, const fb::Parameter &parameter) {
  return !parameter.unsaved() &&
         (!hasAdapters(plan) ||
          plan::isAdapter(parameter.file_name()->string_view()));
}

Result<FileLayout> FileLayout::of(const fb::Plan &plan) {
  FileLayout layout;
  std::set<std::string> names;
  // Several parameters may be parts of one tensor of the file.
  for (const fb::Parameter *parameter : *plan.parameters()) {
    if (!isSaved(plan, *parameter))
      continue;
    // In the plan's order, so that the file does not depend on the mesh.
    std::string name = parameter->file_name()->str();
    auto shape = shapeOf(*parameter->file_shape());
    const auto *saved = parameter->saved_shape();
    auto tensors = listTensors(name, saved ? shapeOf(*saved) : shape);
    int64_t elements = elementCount(*parameter->file_shape());
    auto [known, isNew] =
        layout.byName.emplace(name, Place{layout.tensors.size(),
                                          elements / int64_t(tensors.size()),
                                          {shape.begin(), shape.end()}});
    if (!isNew) {
      const auto &other = known->second.shape;
      if (!std::equal(shape.begin(), shape.end(), other.begin(), other.end()))
        return fail("parameter '", parameter->name()->str(), "' is in '", name,
                    "' of shape ", formatShape(shape), ", another one in ",
                    formatShape(other));
      continue;
    }
    for (TensorShape &tensor : tensors) {
      if (!names.insert(tensor.name).second)
        return fail("parameter '", parameter->name()->str(), "' is in '",
                    tensor.name, "', in which another one is");
      layout.tensors.push_back(std::move(tensor));
    }
  }
  return layout;
}

/// The tensor of a head that is tied, as models of Hugging Face call it; and
/// how the names of its other self end, the table of tokens.
static constexpr const char *headName = "lm_head.weight";
static constexpr const char *tableEndings[] = {"embed_tokens.weight",
                                               "wte.weight"};

Result<std::vector<FileTensors>>
runtime::findTensors(const fb::Plan &plan, const WeightFiles &files) {
  auto isHead = [](const fb::Parameter *parameter) {
    return parameter->file_name()->string_view() == headName;
  };
  bool isTied = plan.config() && std::none_of(plan.parameters()->begin(),
                                              plan.parameters()->end(), isHead);
  // A model that has been trained without adapters has none of them.
  bool hasAdapters =
      std::any_of(plan.parameters()->begin(), plan.parameters()->end(),
                  [&](const fb::Parameter *parameter) {
                    std::string name = parameter->file_name()->str();
                    return plan::isAdapter(name) && files.has(name);
                  });
  std::vector<FileTensors> found;
  for (const fb::Parameter *parameter : *plan.parameters()) {
    std::string name = parameter->file_name()->str();
    bool isTable =
        std::any_of(std::begin(tableEndings), std::end(tableEndings),
                    [&](const char *ending) { return name.ends_with(ending); });
    if (isTied && isTable && !files.has(name) && files.has(headName))
      name = headName;
    FileTensors &own = found.emplace_back();
    if (parameter->unsaved() || (plan::isAdapter(name) && !hasAdapters))
      continue;
    for (const TensorShape &one :
         listTensors(name, shapeOf(*parameter->file_shape()))) {
      auto tensor = files.find(one.name, one.shape);
      if (!tensor.ok())
        return tensor.status();
      own.tensors.push_back(*tensor);
    }
    own.each =
        elementCount(*parameter->file_shape()) / int64_t(own.tensors.size());
  }
  return found;
}

/// Tensors are told apart by address: find() returns the file's own entry.
std::vector<std::string> runtime::findUnusedTensors(const fb::Plan &plan,
                                                    const WeightFiles &files) {
  Result<std::vector<FileTensors>> found = findTensors(plan, files);
  if (!found.ok())
    return {};
  std::set<const FileTensor *> used;
  for (const FileTensors &own : *found)
    used.insert(own.tensors.begin(), own.tensors.end());
  return files.findOthers(used);
}
