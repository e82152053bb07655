//===- Plait.cpp - The plait dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a module is compiled for: configuration, target, cluster, phase,
// origins. Passes ask it of the module by the functions at the end and have no
// options that repeat it, so that a dump goes on to the same plan as the run
// that it was taken from.
//
// The fields of a configuration are one list
// (plait/Configuration/Configuration.h) with names, types and bounds; parsing,
// printing and checking walk the list and name no field.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;

#include "plait/Dialect/Plait/IR/PlaitDialect.cpp.inc"
#include "plait/Dialect/Plait/IR/PlaitEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Plait/IR/PlaitAttrs.cpp.inc"

// Passes ask the functions below and not for these names.
static constexpr StringLiteral kConfigurationAttr = "plait.configuration";
static constexpr StringLiteral kPhaseAttr = "plait.phase";
static constexpr StringLiteral kTargetAttr = "plait.target";
static constexpr StringLiteral kClusterAttr = "plait.cluster";
static constexpr StringLiteral kModelAttr = "plait.model";
static constexpr StringLiteral kModelFlopsAttr = "plait.model_flops";
static constexpr StringLiteral kConfigJsonAttr = "plait.config_json";
static constexpr StringLiteral kExpertChunksAttr = "plait.expert_chunks";
static constexpr StringLiteral kProfileAttr = "plait.profile";
static constexpr StringLiteral kOriginAttr = "plait.origin";

void PlaitDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/Plait/IR/PlaitAttrs.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Configurations
//===----------------------------------------------------------------------===//

/// The attribute holds text and parses it when asked; verify() has seen to it
/// that it parses. Passes ask again for each parameter and layer, so each
/// thread keeps what the last text meant.
TrainingConfiguration ConfigurationAttr::getValue() const {
  thread_local std::string text;
  thread_local TrainingConfiguration value = *parseConfiguration(text);
  if (StringRef fields = getFields(); fields != text) {
    value = *parseConfiguration(std::string_view(fields));
    text = fields.str();
  }
  return value;
}

LogicalResult
ConfigurationAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                          StringRef fields) {
  Result<TrainingConfiguration> parsed =
      parseConfiguration(std::string_view(fields));
  if (!parsed.ok())
    return emitError() << parsed.status().message();
  return success();
}

/// A number, word, string, or list of numbers, as parse() of
/// Configuration.h reads it.
static ParseResult parseFieldText(AsmParser &parser, std::string &text) {
  // Before numbers: those may be `true` and `false` in MLIR.
  if (StringRef word; succeeded(parser.parseOptionalKeyword(&word))) {
    text = word.str();
    return success();
  }
  if (succeeded(parser.parseOptionalString(&text)))
    return success();
  // Of any size; setField() says what is too large.
  APInt number;
  OptionalParseResult result = parser.parseOptionalInteger(number);
  if (result.has_value()) {
    text = llvm::toString(number, 10, /*Signed=*/true);
    return *result;
  }
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
    APInt entry;
    OptionalParseResult parsed = parser.parseOptionalInteger(entry);
    if (!parsed.has_value() || failed(*parsed))
      return ParseResult(
          parser.emitError(parser.getCurrentLocation(), "expected a number"));
    text +=
        (text.empty() ? "" : ",") + llvm::toString(entry, 10, /*Signed=*/true);
    return ParseResult(success());
  });
}

/// Field by field into a configuration of defaults; IR writes names with
/// underscores where options have hyphens.
Attribute ConfigurationAttr::parse(AsmParser &parser, Type) {
  TrainingConfiguration configuration;
  llvm::StringSet<> seen;
  auto parseField = [&]() -> ParseResult {
    llvm::SMLoc loc = parser.getCurrentLocation();
    std::string name, text;
    if (parser.parseKeywordOrString(&name) || parser.parseEqual() ||
        parseFieldText(parser, text))
      return failure();
    llvm::replace(name, '_', '-');
    // (C2)
    if (!seen.insert(name).second)
      return parser.emitError(loc, "field \"") << name << "\" is given twice";
    // (C1), (C3) to (C5)
    if (Status status = setField(configuration, name, text); !status.ok())
      return parser.emitError(loc, status.message());
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     parseField))
    return {};
  return get(parser.getContext(), configuration);
}

namespace {
/// Writes values as parseFieldText reads them.
struct FieldPrinter {
  AsmPrinter &printer;
  bool isFirst = true;

  void printValue(const std::string &value) {
    printer << "\"" << value << "\"";
  }
  /// A word, if it is one.
  void printWords(const std::string &text) {
    if (llvm::all_of(text, llvm::isAlpha))
      printer << text;
    else
      printValue(text);
  }
  void printValue(const Recomputation &value) {
    printWords(plait::print(value));
  }
  void printValue(Offload value) { printWords(plait::print(value)); }
  void printValue(const Compression &value) { printWords(plait::print(value)); }
  void printValue(const Outer &value) { printWords(plait::print(value)); }
  void printValue(const std::vector<int> &value) {
    printer << "[";
    llvm::interleaveComma(value, printer);
    printer << "]";
  }
  template <typename T> void printValue(const T &value) {
    printer << plait::print(value);
  }

  /// Fields at their default are not written: by them a dump means whatever the
  /// default is.
  template <typename T>
  void operator()(const Field &field, const T &value, const T &usual) {
    if (value == usual)
      return;
    printer << (isFirst ? "" : ", ") << field.getKeyword() << " = ";
    isFirst = false;
    printValue(value);
  }
};
} // namespace

/// Prints in the order of the list, whatever order they were read in: equal
/// configurations print alike.
void ConfigurationAttr::print(AsmPrinter &printer) const {
  const TrainingConfiguration configuration = getValue(), defaults;
  printer << "<";
  visitConfiguration(FieldPrinter{printer}, configuration, defaults);
  printer << ">";
}

//===----------------------------------------------------------------------===//
// Attributes of modules
//===----------------------------------------------------------------------===//

/// Tells what an attribute of the dialect has to be; empty: it is as it should
/// be.
static StringRef getExpected(StringRef name, Attribute value) {
  if (name == kConfigurationAttr)
    return isa<ConfigurationAttr>(value) ? "" : "a #plait.configuration";
  if (name == kPhaseAttr)
    return isa<PhaseAttr>(value) ? "" : "a #plait.phase";
  if (name == kTargetAttr)
    return isa<TargetAttr>(value) ? "" : "a #plait.target";
  if (name == kClusterAttr)
    return isa<ClusterAttr>(value) ? "" : "a #plait.cluster";
  if (name == kModelAttr)
    return isa<DictionaryAttr>(value) ? "" : "a dictionary";
  if (name == kConfigJsonAttr || name == kOriginAttr)
    return isa<StringAttr>(value) ? "" : "a string";
  if (name == kProfileAttr)
    return isa<UnitAttr>(value) ? "" : "a unit";
  if (name == kExpertChunksAttr) {
    auto chunks = dyn_cast<IntegerAttr>(value);
    return chunks && chunks.getType().isInteger(64) && chunks.getInt() > 1 &&
                   chunks.getInt() <= kMostExpertChunks
               ? ""
               : "an i64 of 2 to 64";
  }
  if (name != kModelFlopsAttr)
    return "another name: the dialect has no such attribute";
  auto number = dyn_cast<FloatAttr>(value);
  return number && number.getType().isF64() && number.getValue().isFinite() &&
                 number.getValueAsDouble() >= 0
             ? ""
             : "an f64 of 0 or more";
}

/// Names that the dialect does not know are errors: a misspelt configuration
/// would else be a default one.
LogicalResult PlaitDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (StringRef expected = getExpected(name, attribute.getValue());
      !expected.empty())
    return op->emitOpError("has ") << name << " = " << attribute.getValue()
                                   << ", expected " << expected;
  if (name != kOriginAttr && !isa<ModuleOp>(op))
    return op->emitOpError("has ") << name << ", which is for modules";
  return success();
}

ConfigurationAttr plait::getConfigurationAttr(ModuleOp module) {
  return module->getAttrOfType<ConfigurationAttr>(kConfigurationAttr);
}

TrainingConfiguration plait::getConfiguration(ModuleOp module) {
  ConfigurationAttr attribute = getConfigurationAttr(module);
  return attribute ? attribute.getValue() : TrainingConfiguration();
}

void plait::setConfiguration(ModuleOp module,
                             const TrainingConfiguration &configuration) {
  module->setAttr(kConfigurationAttr,
                  ConfigurationAttr::get(module.getContext(), configuration));
}

/// Leaves the model: phase and origins say nothing of how it is compiled.
void plait::removeConfiguration(ModuleOp module) {
  for (StringRef name :
       {kConfigurationAttr, kTargetAttr, kClusterAttr, kExpertChunksAttr})
    module->removeAttr(name);
}

int64_t plait::getExpertChunks(ModuleOp module) {
  auto chunks = module->getAttrOfType<IntegerAttr>(kExpertChunksAttr);
  return chunks ? chunks.getInt() : 1;
}

void plait::setExpertChunks(ModuleOp module, int64_t chunks) {
  if (chunks == 1)
    module->removeAttr(kExpertChunksAttr);
  else
    module->setAttr(kExpertChunksAttr,
                    Builder(module.getContext()).getI64IntegerAttr(chunks));
}

void plait::setProfile(ModuleOp module) {
  module->setAttr(kProfileAttr, UnitAttr::get(module.getContext()));
}

bool plait::isProfile(ModuleOp module) { return module->hasAttr(kProfileAttr); }

/// A module that says nothing is a model that was written by hand.
Phase plait::getPhase(ModuleOp module) {
  auto attribute = module->getAttrOfType<PhaseAttr>(kPhaseAttr);
  return attribute ? attribute.getValue() : Phase::Import;
}

/// The phase that reads the mesh, by which shardings are weighed.
static constexpr Phase kMeshReader = Phase::Shard;
/// The phase that reads the cluster's rates, by which shardings are weighed,
/// too.
static constexpr Phase kClusterReader = Phase::Shard;
/// The phase that first asks what executes the plan.
static constexpr Phase kTargetReader = Phase::Lower;

/// Whether some phase up to `reached` reads `field`.
static bool isReadBy(Phase reached, const Field &field) {
  return *symbolizePhase(field.phase) <= reached;
}

/// Leaves out what is read later: it may still be edited. After import the
/// model is the same whatever it is to be compiled for.
void plait::setPhase(ModuleOp module, Phase phase, StringRef mesh) {
  MLIRContext *context = module.getContext();
  ConfigurationAttr read;
  TargetAttr target;
  if (phase >= kTargetReader)
    target = getTarget(module);
  if (phase >= kMeshReader) {
    TrainingConfiguration configuration = getConfiguration(module);
    const TrainingConfiguration defaults;
    visitConfiguration(
        [&](const Field &field, auto &value, const auto &usual) {
          if (!isReadBy(phase, field))
            value = usual;
        },
        configuration, defaults);
    read = ConfigurationAttr::get(context, configuration);
  }
  module->setAttr(kPhaseAttr,
                  PhaseAttr::get(context, phase, read,
                                 read ? mesh : StringRef(), target,
                                 phase >= kClusterReader ? getCluster(module)
                                                         : ClusterAttr()));
}

static std::string showAttribute(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream out(text);
  attribute ? out << attribute : out << "none";
  return text;
}

/// Tells of an edit of something that `reader` has read.
static Status tellEdit(const std::string &what, const std::string &now,
                       const std::string &reader, const std::string &read) {
  return fail(what, " is ", now, ", but phase ", reader, " has read ", read,
              ": it can only be changed in IR of an earlier phase");
}

/// The first field that differs is reported.
static Status checkReadFields(ModuleOp module, PhaseAttr phase) {
  const TrainingConfiguration now = getConfiguration(module),
                              read = phase.getRead().getValue();
  Status status = Status::success();
  visitConfiguration(
      [&](const Field &field, const auto &value, const auto &known) {
        if (status.ok() && isReadBy(phase.getValue(), field) && value != known)
          status = tellEdit(field.getKeyword(), show(value), field.phase,
                            show(known));
      },
      now, read);
  return status;
}

Status plait::checkRead(ModuleOp module, StringRef mesh) {
  auto phase = module->getAttrOfType<PhaseAttr>(kPhaseAttr);
  if (!phase || !phase.getRead())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(checkReadFields(module, phase));
  if (mesh != phase.getMesh())
    return tellEdit("the mesh", show(mesh.str()),
                    stringifyPhase(kMeshReader).str(), phase.getMesh().str());
  if (phase.getValue() >= kTargetReader &&
      getTarget(module) != phase.getTarget())
    return tellEdit("plait.target", showAttribute(getTarget(module)),
                    stringifyPhase(kTargetReader).str(),
                    showAttribute(phase.getTarget()));
  // One that nobody knew may become known.
  if (phase.getCluster() && getCluster(module) != phase.getCluster())
    return tellEdit("plait.cluster", showAttribute(getCluster(module)),
                    stringifyPhase(kClusterReader).str(),
                    showAttribute(phase.getCluster()));
  return Status::success();
}

bool plait::hasReadRecord(ModuleOp module) {
  auto phase = module->getAttrOfType<PhaseAttr>(kPhaseAttr);
  return phase && phase.getRead();
}

TargetAttr plait::getTarget(ModuleOp module) {
  return module->getAttrOfType<TargetAttr>(kTargetAttr);
}

ClusterAttr plait::getCluster(ModuleOp module) {
  return module->getAttrOfType<ClusterAttr>(kClusterAttr);
}

/// Rates are as the header gives them: 64 KiB at 100 GB/s is the latency of the
/// one link, which stands for all axes.
RatesAttr plait::getRates(ModuleOp module) {
  if (ClusterAttr cluster = getCluster(module))
    if (RatesAttr rates = cluster.getRates())
      return rates;
  Builder builder(module.getContext());
  LinkAttr link = LinkAttr::get(module.getContext(), "",
                                builder.getF64FloatAttr(64 * 1024 / 100e9),
                                builder.getF64FloatAttr(100e9));
  return RatesAttr::get(module.getContext(), builder.getF64FloatAttr(100e12),
                        builder.getF64FloatAttr(625e9),
                        builder.getArrayAttr(link), /*gemm_units=*/0);
}

/// No default beside rates that are given: a link that they lack would be
/// priced by another machine.
FailureOr<LinkAttr> plait::getLink(ModuleOp module, StringRef axis) {
  if (LinkAttr link = getRates(module).findLink(axis))
    return link;
  return module.emitOpError("has rates without a link along axis \"")
         << axis << "\"";
}

/// Removes the attribute where `value` is null.
static void set(ModuleOp module, StringRef name, Attribute value) {
  if (value)
    module->setAttr(name, value);
  else
    module->removeAttr(name);
}

void plait::setTarget(ModuleOp module, TargetAttr target) {
  set(module, kTargetAttr, target);
}

void plait::setCluster(ModuleOp module, ClusterAttr cluster) {
  set(module, kClusterAttr, cluster);
}

double plait::getModelFlops(ModuleOp module) {
  auto flops = module->getAttrOfType<FloatAttr>(kModelFlopsAttr);
  return flops ? flops.getValueAsDouble() : 0;
}

void plait::setModelFlops(ModuleOp module, double flops) {
  set(module, kModelFlopsAttr, Builder(module).getF64FloatAttr(flops));
}

StringRef plait::getConfigJson(ModuleOp module) {
  auto text = module->getAttrOfType<StringAttr>(kConfigJsonAttr);
  return text ? text.getValue() : StringRef();
}

void plait::setConfigJson(ModuleOp module, StringRef text) {
  set(module, kConfigJsonAttr, Builder(module).getStringAttr(text));
}

//===----------------------------------------------------------------------===//
// Origins
//===----------------------------------------------------------------------===//

/// The outermost name, which is the last that was given.
StringAttr plait::findOrigin(Location location) {
  StringAttr found;
  location->walk([&](Location part) {
    auto named = dyn_cast<NameLoc>(part);
    if (!named)
      return WalkResult::advance();
    found = named.getName();
    return WalkResult::interrupt();
  });
  return found;
}

/// The attribute stays until a phase begins from the text (restoreOrigins()).
void plait::keepOrigins(ModuleOp module) {
  module.walk([](Operation *op) {
    if (StringAttr name = findOrigin(op->getLoc()))
      op->setAttr(kOriginAttr, name);
  });
}

/// The name goes around the location that the op has from being read, so that
/// messages still point into the file.
void plait::restoreOrigins(ModuleOp module) {
  // Arguments have no attribute to keep a name in.
  Location unknown = UnknownLoc::get(module.getContext());
  module.walk([&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setLoc(unknown);
    if (auto name = op->getAttrOfType<StringAttr>(kOriginAttr)) {
      op->removeAttr(kOriginAttr);
      op->setLoc(NameLoc::get(name, op->getLoc()));
    }
  });
}
