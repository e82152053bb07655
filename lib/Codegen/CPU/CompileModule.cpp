//===- CompileModule.cpp - Vector code to x86 machine code ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Target.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
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

int64_t codegen::getVectorWidth(const llvm::TargetMachine &machine) {
  const llvm::MCSubtargetInfo &features = *machine.getMCSubtargetInfo();
  if (!features.checkFeatures("+avx2") || !features.checkFeatures("+fma"))
    return 0;
  bool wide =
      features.checkFeatures("+avx512f") && features.checkFeatures("+avx512vl");
  return wide ? 16 : 8;
}

//===----------------------------------------------------------------------===//
// MLIR to LLVM
//===----------------------------------------------------------------------===//

/// Transcendental functions become polynomials: no library to call at run time,
/// and vectors throughout.
static LogicalResult expandFunctions(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

static LogicalResult lowerToLLVM(ModuleOp module) {
  if (failed(expandFunctions(module)))
    return failure();
  PassManager passes(module.getContext());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertVectorToLLVMPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createConvertFuncToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  return passes.run(module);
}

static std::unique_ptr<llvm::Module>
translate(ModuleOp module, llvm::LLVMContext &context,
          const llvm::TargetMachine &machine) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, "plait-kernels");
  if (!llvmModule)
    return nullptr;
  llvmModule->setSourceFileName("plait-kernels");
  llvmModule->setTargetTriple(machine.getTargetTriple());
  llvmModule->setDataLayout(machine.createDataLayout());
  for (llvm::Function &function : *llvmModule) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    // Some processors are tuned to 256 bits; the vectors here are chosen.
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  return llvmModule;
}

//===----------------------------------------------------------------------===//
// LLVM to machine code
//===----------------------------------------------------------------------===//

static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  // Loops are vectorised already.
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  // A loop must not become a call of memset: there is no C library.
  functions.registerPass([&] {
    llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
    library.disableAllFunctions();
    return llvm::TargetLibraryAnalysis(library);
  });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

FailureOr<llvm::SmallString<0>>
codegen::compileModule(ModuleOp module, llvm::TargetMachine &machine) {
  Location loc = UnknownLoc::get(module.getContext());
  if (failed(lowerToLLVM(module)))
    return emitError(loc, "cannot lower the kernels to the llvm dialect");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translate(module, context, machine);
  if (!llvmModule)
    return emitError(loc, "cannot translate the kernels to LLVM");
  optimize(*llvmModule, machine);
  llvm::SmallString<0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    return emitError(loc, "LLVM cannot write objects for '")
           << machine.getTargetCPU() << "'";
  passes.run(*llvmModule);
  return object;
}
