//===- LowerModule.cpp - Vector code to machine code
//--------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the kernels' functions in MLIR to assembly or machine code, for
// whichever machine: MLIR's conversions to the llvm dialect, translation to
// LLVM IR, LLVM's own optimisations and its code generator. What is special
// here is what kernels must not have: calls of libraries, as a plan's code is
// linked to nothing.
//
//===----------------------------------------------------------------------===//

#include "LowerModule.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
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
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

//===----------------------------------------------------------------------===//
// MLIR to LLVM
//===----------------------------------------------------------------------===//

/// Transcendental functions become polynomials: no library to call at run time,
/// and vectors throughout.
/// They are the same for vectors and scalars.
static LogicalResult expandFunctions(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

/// Structured loops first: the others lower what is in their bodies. The casts
/// that conversions leave between types of the two worlds cancel each other at
/// the end.
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

/// Returns null where a construct has no translation. Names are constant: the
/// bytes of a plan must not depend on paths. `adjust` may add to a function's
/// attributes what one kind of machine needs.
static std::unique_ptr<llvm::Module>
translate(ModuleOp module, llvm::LLVMContext &context,
          const llvm::TargetMachine &machine,
          llvm::function_ref<void(llvm::Function &)> adjust) {
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
    adjust(function);
    // LLVM recognises loops that copy or fill, and would call a function for
    // them.
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  return llvmModule;
}

//===----------------------------------------------------------------------===//
// LLVM to machine code
//===----------------------------------------------------------------------===//

/// Passes for kernels that are loops over vectors already: common
/// subexpressions, what does not change in a loop, and unrolling. On processors
/// their code is within 1.5 % of that of level O3, which takes a third of a
/// small compilation.
static llvm::ModulePassManager makeShortPipeline() {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::LoopPassManager loops;
  loops.addPass(llvm::LoopRotatePass());
  loops.addPass(llvm::LICMPass(llvm::LICMOptions()));
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loops),
                                                       /*UseMemorySSA=*/true));
  passes.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(/*OptLevel=*/3)));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager pipeline;
  pipeline.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  return pipeline;
}

/// LLVM's default pipeline of level O3 where the machine's code generator is
/// asked for all it can do, and else the short one.
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
  llvm::ModulePassManager pipeline =
      machine.getOptLevel() == llvm::CodeGenOptLevel::Aggressive
          ? builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
          : makeShortPipeline();
  pipeline.run(module, modules);
}

/// Translates `module`, which it consumes, to optimised LLVM IR.
///
/// 1. MLIR to the llvm dialect.
/// 2. That to LLVM IR.
/// 3. Optimise.
static FailureOr<std::unique_ptr<llvm::Module>>
translateOptimized(ModuleOp module, llvm::LLVMContext &context,
                   llvm::TargetMachine &machine,
                   llvm::function_ref<void(llvm::Function &)> adjust) {
  Location loc = UnknownLoc::get(module.getContext());
  // 1.
  if (failed(lowerToLLVM(module)))
    return emitError(loc, "cannot lower the kernels to the llvm dialect");
  // 2.
  std::unique_ptr<llvm::Module> llvmModule =
      translate(module, context, machine, adjust);
  if (!llvmModule)
    return emitError(loc, "cannot translate the kernels to LLVM");
  // 3.
  optimize(*llvmModule, machine);
  return llvmModule;
}

/// LLVM's code generator still wants the legacy pass manager.
static FailureOr<llvm::SmallString<0>> writeCode(llvm::Module &module,
                                                 llvm::TargetMachine &machine,
                                                 llvm::CodeGenFileType type,
                                                 MLIRContext *context) {
  llvm::SmallString<0> code;
  llvm::raw_svector_ostream stream(code);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    return emitError(UnknownLoc::get(context), "LLVM cannot write code for '")
           << machine.getTargetCPU() << "'";
  passes.run(module);
  return code;
}

/// LLVM's context is one of its own, which goes with this call.
FailureOr<llvm::SmallString<0>>
codegen::lowerModule(ModuleOp module, llvm::TargetMachine &machine,
                     llvm::CodeGenFileType type,
                     llvm::function_ref<void(llvm::Function &)> adjust) {
  llvm::LLVMContext context;
  auto llvmModule = translateOptimized(module, context, machine, adjust);
  if (failed(llvmModule))
    return failure();
  return writeCode(**llvmModule, machine, type, module.getContext());
}

/// Up to the code generator all functions go together, since what each pass
/// prepares takes longer than one function.
FailureOr<SmallVector<llvm::SmallString<0>>>
codegen::lowerFunctions(ModuleOp module, llvm::TargetMachine &machine,
                        llvm::function_ref<void(llvm::Function &)> adjust) {
  llvm::LLVMContext context;
  auto llvmModule = translateOptimized(module, context, machine, adjust);
  if (failed(llvmModule))
    return failure();
  SmallVector<llvm::SmallString<0>> objects;
  for (const llvm::Function &function : **llvmModule) {
    if (function.isDeclaration())
      continue;
    llvm::ValueToValueMapTy map;
    std::unique_ptr<llvm::Module> alone = llvm::CloneModule(
        **llvmModule, map,
        [&](const llvm::GlobalValue *value) { return value == &function; });
    auto object = writeCode(*alone, machine, llvm::CodeGenFileType::ObjectFile,
                            module.getContext());
    if (failed(object))
      return failure();
    objects.push_back(std::move(*object));
  }
  return objects;
}
