//===- Container.h - The frame of a plan file -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A `.plan` file is a 64-byte header followed by the FlatBuffer of Plan.fbs.
// The header, little-endian:
//
//   offset  0  8 bytes  magic "PLAITPLN"
//   offset  8  u32      version (2)
//   offset 12  u32      level that a reader needs (Level.h)
//   offset 16  u64      payload length in bytes
//   offset 24  u64      XXH3-64 of the payload
//   offset 32  32 bytes zero
//
// The hash finds accidents, not attackers: a plan holds machine code and is to
// be trusted like an executable. Nothing of a file is used before the header,
// the hash, the FlatBuffers verifier and checkPlan have all accepted it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_CONTAINER_H
#define PLAIT_PLAN_CONTAINER_H

#include "plait/Plan/Files.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <string>

namespace plait::plan {

constexpr uint32_t containerVersion = 2;
constexpr size_t containerHeaderBytes = 64;

/// Checks `plan` (checkPlan, and its certificate) and writes it aside; it
/// appears at `path` with commit(). The same plan gives the same bytes.
Result<OutputFile> preparePlan(const std::string &path, const fb::PlanT &plan);

/// The same, and lets it appear.
Status writePlan(const std::string &path, const fb::PlanT &plan);

/// The FlatBuffer of `plan`, as Plan.reference embeds it.
std::vector<uint8_t> packPlan(const fb::PlanT &plan);

/// Gives the certificate of `plan`, which has one, the hash of the plan. What
/// is changed afterwards, in the plan or in its file, is refused by who writes
/// or opens it.
void certifyPlan(fb::PlanT &plan);

/// One line without its end: what is proven of `plan`, or why nothing is.
std::string describeProof(const fb::Plan &plan);

/// An open, verified plan; the mapping lives as long as the object.
class PlanFile {
public:
  /// Fails with one line that names the file and what is wrong with it.
  static Result<PlanFile> open(const std::string &path);

  const fb::Plan &plan() const { return *root; }

  /// Returns the hash of the payload, as the header has it, which tells plans
  /// apart.
  uint64_t hash() const;

private:
  PlanFile(MappedFile file, const fb::Plan *root)
      : file(std::move(file)), root(root) {}

  MappedFile file;
  const fb::Plan *root;
};

} // namespace plait::plan

#endif // PLAIT_PLAN_CONTAINER_H
