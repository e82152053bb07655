//===- FileLayout.h - Parameters in the files of a model -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor of a file may be several parameters, and a parameter several tensors
// of files. Everything else that moves parameters sees one tensor of the shape
// `file_shape` (Slices.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_FILELAYOUT_H
#define PLAIT_LIB_RUNTIME_CORE_FILELAYOUT_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Runtime/Safetensors.h"

#include <algorithm>
#include <map>

namespace plait::runtime {

namespace fb = plan::fb;

/// Whether a saved model has the parameter: where adapters are trained, they
/// alone are saved.
bool isSaved(const fb::Plan &plan, const fb::Parameter &parameter);

/// The tensors of the file, in the order of the parameters. A tensor of the
/// file may be the union of several parameters (fused projections), each of
/// which knows its box of it; all must agree on the tensor's shape. Or several
/// tensors are one parameter (experts), one behind the other.
struct FileLayout {
  struct Place {
    size_t first; // of `tensors`
    int64_t each; // elements of one
    std::vector<int64_t> shape;
  };
  std::vector<TensorShape> tensors;
  std::map<std::string, Place> byName;

  static Result<FileLayout> of(const fb::Plan &plan);
};

/// Calls visit(tensor, begin, offset, count) for each tensor that elements of
/// several of `each` elements, one behind the other, lie in: `offset` counts
/// from `begin` on.
template <typename Visit>
void forEachTensor(int64_t each, int64_t begin, int64_t count, Visit visit) {
  for (int64_t done = 0; done < count;) {
    int64_t at = begin + done, own = std::min(count - done, each - at % each);
    visit(size_t(at / each), at % each, done, own);
    done += own;
  }
}

/// The tensors of files that one parameter lies in, one behind the other.
struct FileTensors {
  std::vector<const FileTensor *> tensors;
  int64_t each = 0; // elements of one

  void read(int64_t begin, std::span<float> target) const {
    forEachTensor(
        each, begin, target.size(),
        [&](size_t tensor, int64_t first, int64_t offset, int64_t count) {
          tensors[tensor]->read(first, target.subspan(offset, count));
        });
  }
};

/// The tensors of each parameter; none of what files need not have: see
/// Parameter.unsaved, and adapters, where `files` has none at all. A matrix
/// that is both table and head lies in files under either name, or under both:
/// it is tied where the model, which is then one of Hugging Face's, has no
/// parameter for the head.
Result<std::vector<FileTensors>> findTensors(const fb::Plan &plan,
                                             const WeightFiles &files);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_FILELAYOUT_H
