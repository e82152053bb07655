//===- Layout.h - The mesh of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_LAYOUT_H
#define PLAIT_LIB_DRIVER_LAYOUT_H

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Driver/Driver.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace plait {

/// The sizes of a mesh, all at least 1.
struct Layout {
  // Ranks along pp, dp, cp, tp.
  int64_t pipeline = 1, data = 1, context = 1, tensor = 1;

  int64_t ranks() const { return pipeline * data * context * tensor; }
  /// Name and size of the axes of the mesh, outermost first. One that is there
  /// on demand (cp) is left out where it has one rank.
  llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> axes() const;
  /// The same as `--mesh` has it: "pp=1,dp=2,tp=2".
  std::string mesh() const;
  bool operator==(const Layout &) const = default;
};

/// Reads CompileOptions::mesh. Fails on an axis that a mesh does not have and
/// on a size that is not positive.
Result<Layout> parseMesh(llvm::StringRef text);

/// What of `pins` has nothing to divide in such a mesh, one line each: "--zero
/// 1 has no effect: dp is 1".
std::vector<std::string> findIdlePins(const ConfigurationPins &pins,
                                      const Layout &layout);

/// The sizes of `mesh`; fails like parseMesh.
Result<Layout> getLayout(dist::MeshOp mesh);

/// Adds the mesh in front of everything in `module`.
void addMesh(mlir::ModuleOp module, const Layout &layout);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_LAYOUT_H
