//===- CompileModule.cpp - Vector code for a processor --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is special to x86-64 processors: the levels of its ABI as targets, what
// they have, and how LLVM is asked for their code. Code is compiled for a level
// rather than for the machine at hand, so that a plan runs on others, too.
//
//===----------------------------------------------------------------------===//

#include "Target.h"

#include "../LowerModule.h"

#include "llvm/IR/Function.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

static constexpr llvm::StringLiteral kTriple = "x86_64-unknown-linux-gnu";

//===----------------------------------------------------------------------===//
// The processor
//===----------------------------------------------------------------------===//

/// The features that the ABI counts as level 4 beyond level 3; kernels need
/// level 3 in any case.
TargetCPU TargetCPU::getHost() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  auto hasAll = [&](ArrayRef<StringRef> names) {
    return llvm::all_of(names,
                        [&](StringRef name) { return features.lookup(name); });
  };
  if (!hasAll({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}))
    return {"x86-64-v3", ""};
  return {"x86-64-v4", ""};
}

/// Position-independent, as kernels are loaded anywhere. A name that LLVM does
/// not know would only be a warning there, and another processor's code.
std::unique_ptr<llvm::TargetMachine>
codegen::createMachine(const TargetCPU &target) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  std::string error;
  llvm::Triple triple(kTriple);
  const llvm::Target *x86 = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!x86)
    return nullptr;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(
      x86->createMCSubtargetInfo(triple, "", ""));
  if (!subtarget || !subtarget->isCPUStringValid(target.name))
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(x86->createTargetMachine(
      triple, target.name, target.features, llvm::TargetOptions(),
      llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// A plan names them, and its runtime compares them with those of the machine
/// before it runs the code: an illegal instruction would come in the middle of
/// a step.
std::vector<std::string>
codegen::listFeatures(const llvm::TargetMachine &machine) {
  // LLVM's name and the kernel's.
  static constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral> names[] =
      {{"ssse3", "ssse3"},
       {"sse4.1", "sse4_1"},
       {"sse4.2", "sse4_2"},
       {"popcnt", "popcnt"},
       {"avx", "avx"},
       {"avx2", "avx2"},
       {"fma", "fma"},
       {"f16c", "f16c"},
       {"bmi", "bmi1"},
       {"bmi2", "bmi2"},
       {"lzcnt", "abm"},
       {"movbe", "movbe"},
       {"avx512f", "avx512f"},
       {"avx512bw", "avx512bw"},
       {"avx512cd", "avx512cd"},
       {"avx512dq", "avx512dq"},
       {"avx512vl", "avx512vl"},
       {"avx512vnni", "avx512_vnni"},
       {"avx512bf16", "avx512_bf16"}};
  std::vector<std::string> present;
  for (const auto &[name, kernelName] : names)
    if (machine.getMCSubtargetInfo()->checkFeatures(("+" + name).str()))
      present.push_back(kernelName.str());
  return present;
}

/// 512 bits only with avx512vl, as LLVM then has all operations in all widths.
int64_t codegen::getVectorWidth(const llvm::TargetMachine &machine) {
  const llvm::MCSubtargetInfo &features = *machine.getMCSubtargetInfo();
  if (!features.checkFeatures("+avx2") || !features.checkFeatures("+fma"))
    return 0;
  bool wide =
      features.checkFeatures("+avx512f") && features.checkFeatures("+avx512vl");
  return wide ? 16 : 8;
}

FailureOr<SmallVector<llvm::SmallString<0>>>
codegen::compileFunctions(ModuleOp module, llvm::TargetMachine &machine) {
  return lowerFunctions(module, machine, [](llvm::Function &function) {
    // Some processors are tuned to 256 bits; the vectors here are chosen.
    function.addFnAttr("prefer-vector-width", "512");
    // Kernels have names for the plan besides those that are linked.
    function.setVisibility(llvm::GlobalValue::HiddenVisibility);
  });
}
