//===- Pipe.cpp - The pipe dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Stages, ports, placements and schedules as attributes and one op. The
// schedule library (plait/Schedule) knows no IR, and does all that is an
// algorithm: parsing a list of actions, printing it, and proving it sound. Here
// are the borders between the two, the enumerations that they share, and what
// ties attributes to functions.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Pipe/IR/Pipe.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "plait/Schedule/Verify.h"
#include "plait/Support/ActionKinds.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::pipe;

/// `"F0 B0"`, with an error at the string where it is none.
static FailureOr<ActionsAttr> parseActionList(AsmParser &parser) {
  std::string text;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseString(&text))
    return failure();
  Result<std::vector<schedule::Action>> actions = schedule::parseActions(text);
  if (actions.ok())
    return ActionsAttr::get(parser.getContext(), *actions);
  return parser.emitError(loc, actions.status().message());
}

static void printActionList(AsmPrinter &printer, ActionsAttr actions) {
  printer << '"' << schedule::print(actions.getActions()) << '"';
}

static ParseResult parseActionLists(OpAsmParser &parser, ArrayAttr &lists) {
  SmallVector<Attribute> ranks;
  auto parseRank = [&]() -> ParseResult {
    FailureOr<ActionsAttr> rank = parseActionList(parser);
    if (succeeded(rank))
      ranks.push_back(*rank);
    return success(succeeded(rank));
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseRank))
    return failure();
  lists = parser.getBuilder().getArrayAttr(ranks);
  return success();
}

static void printActionLists(OpAsmPrinter &printer, ScheduleOp,
                             ArrayAttr lists) {
  auto print = [&](ActionsAttr rank) { printActionList(printer, rank); };
  printer << '[';
  llvm::interleaveComma(lists.getAsRange<ActionsAttr>(), printer, print);
  printer << ']';
}

#include "plait/Dialect/Pipe/IR/PipeDialect.cpp.inc"
#include "plait/Dialect/Pipe/IR/PipeEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Pipe/IR/PipeAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Pipe/IR/PipeOps.cpp.inc"

void PipeDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/Pipe/IR/PipeAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/Pipe/IR/PipeOps.cpp.inc"
      >();
}

// Enumerations of IR and of the library are cast into each other: their numbers
// have to be the same.
#define PLAIT_SAME_ACTION(NAME, NUMBER, ...)                                   \
  static_assert(int(ActionKind::NAME) == NUMBER);
#define PLAIT_NOT_HERE(...)
PLAIT_FOR_EACH_ACTION_KIND(PLAIT_SAME_ACTION, PLAIT_NOT_HERE)
#undef PLAIT_SAME_ACTION
#undef PLAIT_NOT_HERE
static_assert(int(Arrangement::Looped) == int(schedule::Placement::RoundRobin));
static_assert(int(Arrangement::V) == int(schedule::Placement::VShape));

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

Attribute ActionsAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<ActionsAttr> actions = parseActionList(parser);
  return failed(actions) || parser.parseGreater() ? ActionsAttr() : *actions;
}

void ActionsAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printActionList(printer, *this);
  printer << '>';
}

/// Transfers have no function: they move a buffer.
LogicalResult FunctionAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   ActionKind action, int64_t index) {
  // (C1)
  if (action == ActionKind::Send || action == ActionKind::Recv ||
      action == ActionKind::WaitSend)
    return emitError() << "function does \"" << stringifyActionKind(action)
                       << "\", which is a transfer";
  // (C2)
  if (index < 0)
    return emitError() << "function is for " << index << ", expected 0 or more";
  return success();
}

LogicalResult PortAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               PortKind kind, int64_t index) {
  // (C1)
  if (index < 0 || (isSingle(kind) && index != 0))
    return emitError() << "port " << stringifyPortKind(kind) << " has index "
                       << index << ", expected 0"
                       << (isSingle(kind) ? "" : " or more");
  return success();
}

std::string PortAttr::getText() const {
  std::string text = stringifyPortKind(getKind()).str();
  return isSingle(getKind()) ? text : text + " " + std::to_string(getIndex());
}

bool PortAttr::namesModelInput(StringRef text) {
  auto [word, index] = text.split(' ');
  std::optional<PortKind> kind = symbolizePortKind(word);
  return kind && *kind <= PortKind::Context && isSingle(*kind) == index.empty();
}

/// `<residual 3>`, `<tokens>`: an index where there may be several of a kind.
Attribute PortAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  int64_t index = 0;
  if (parser.parseLess() || parser.parseKeyword(&word))
    return {};
  std::optional<PortKind> kind = symbolizePortKind(word);
  if (!kind)
    return parser.emitError(loc, "unknown port \"") << word << "\"",
           Attribute();
  if ((!isSingle(*kind) && parser.parseInteger(index)) || parser.parseGreater())
    return {};
  return parser.getChecked<PortAttr>(loc, parser.getContext(), *kind, index);
}

void PortAttr::print(AsmPrinter &printer) const {
  printer << "<" << getText() << ">";
}

LogicalResult
PlacementAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                      Arrangement arrangement, int64_t ranks, int64_t chunks) {
  // Bounds what a text can ask for, far above any cluster.
  constexpr int64_t most = 1 << 22;
  // (C1)
  if (ranks < 1 || chunks < 1 || ranks > most || chunks > most ||
      ranks * chunks > most)
    return emitError() << "placement has " << ranks << " ranks of " << chunks
                       << " chunks, expected 1 or more of each and at most "
                       << most << " in all";
  return success();
}

/// The library's form of the same facts.
schedule::Problem PlacementAttr::getProblem(int64_t microbatches) const {
  schedule::Problem problem;
  problem.stages = getRanks();
  problem.chunks = getChunks();
  problem.microbatches = microbatches;
  problem.placement = static_cast<schedule::Placement>(getArrangement());
  return problem;
}

int64_t PlacementAttr::getRank(int64_t stage) const {
  return getProblem(1).rankOf(stage);
}

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

/// Whether a function that does `action` may take (or give) a port.
static bool mayHave(ActionKind action, PortKind port, bool isResult) {
  switch (action) {
  case ActionKind::Forward:
    // Port kinds are in order: what the model is given, then inputs.
    return isResult ? port == PortKind::Output || port == PortKind::Residual
                    : port <= PortKind::Input;
  case ActionKind::Joint:
    return isResult
               ? port == PortKind::Output || port == PortKind::InputGradient
               : port <= PortKind::Input || port == PortKind::OutputGradient;
  // Backward functions may take anything that is kept, inputs and outputs of
  // the stage included.
  case ActionKind::Backward:
    return isResult ? port == PortKind::InputGradient
                    : port != PortKind::InputGradient;
  case ActionKind::BackwardInput:
    return isResult
               ? port == PortKind::InputGradient || port == PortKind::Residual
               : port != PortKind::InputGradient;
  // Its results are added to gradients in memory; it returns nothing.
  case ActionKind::BackwardWeight:
    return !isResult;
  default: // of all of a rank's stages, or of no function
    return false;
  }
}

/// (C2) and (C3) for all arguments, or all results.
static LogicalResult verifyPorts(FunctionOpInterface function,
                                 FunctionAttr attribute, bool isResult) {
  StringRef what = isResult ? "result" : "argument";
  unsigned count =
      isResult ? function.getNumResults() : function.getNumArguments();
  llvm::SmallDenseSet<Attribute> seen;
  for (unsigned index = 0; index < count; ++index) {
    Attribute found = isResult ? function.getResultAttr(index, kPortAttr)
                               : function.getArgAttr(index, kPortAttr);
    auto port = dyn_cast_or_null<PortAttr>(found);
    if (!port)
      return function.emitError(what)
             << " " << index << " has no port; expected the attribute "
             << kPortAttr;
    if (!mayHave(attribute.getAction(), port.getKind(), isResult))
      return function.emitError(what)
             << " " << index << " is " << port.getText() << ", which no "
             << stringifyActionKind(attribute.getAction()) << " function "
             << (isResult ? "gives" : "takes");
    // A port is a buffer: two arguments for one would be two names of it.
    if (!seen.insert(port).second)
      return function.emitError(what)
             << " " << index << " is a second " << port.getText();
  }
  return success();
}

/// Fails with an error on `op` unless the attribute is of kind `AttrT`, which
/// the message names as IR writes it.
template <typename AttrT>
static LogicalResult verifyKind(Operation *op, NamedAttribute attribute) {
  if (isa<AttrT>(attribute.getValue()))
    return success();
  return op->emitOpError("has ")
         << attribute.getName() << " = " << attribute.getValue()
         << ", expected a " << AttrT::name;
}

/// Whether a list of a function has attributes for each of `count` arguments or
/// results, or none at all.
static bool hasAttributes(ArrayAttr list, size_t count) {
  return !list ||
         (list.size() == count && llvm::all_of(list, [](Attribute attributes) {
            return isa_and_nonnull<DictionaryAttr>(attributes);
          }));
}

/// Whether the type and the lists of attributes of a function are as its own
/// verifier wants them, which runs after those of discardable attributes.
static bool isWellFormed(FunctionOpInterface function) {
  auto type = function->getAttrOfType<TypeAttr>("function_type");
  return type && isa<FunctionType>(type.getValue()) &&
         hasAttributes(function.getArgAttrsAttr(),
                       function.getNumArguments()) &&
         hasAttributes(function.getResAttrsAttr(), function.getNumResults());
}

/// Unknown names that begin with `pipe.` are errors, since a misspelt one would
/// else be passed over in silence. A function is checked with all of its ports,
/// once, at its own attribute.
LogicalResult PipeDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kStageAttr) {
    // (C1)
    auto number = dyn_cast<IntegerAttr>(attribute.getValue());
    if (number && number.getType().isSignlessInteger(64) &&
        number.getInt() >= 0)
      return success();
    return op->emitOpError("has ")
           << kStageAttr << " = " << attribute.getValue()
           << ", expected an i64 of 0 or more";
  }
  if (name == kPlacementAttr)
    return verifyKind<PlacementAttr>(op, attribute);
  if (name != kFunctionAttr)
    return op->emitOpError("has an attribute ")
           << attribute.getName() << ", which the pipe dialect does not know";
  if (failed(verifyKind<FunctionAttr>(op, attribute)))
    return failure();
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError("has ") << kFunctionAttr << " but is no function";
  // The function's own verifier says what is wrong.
  if (!isWellFormed(function))
    return success();
  auto kind = cast<FunctionAttr>(attribute.getValue());
  return success(succeeded(verifyPorts(function, kind, /*isResult=*/false)) &&
                 succeeded(verifyPorts(function, kind, /*isResult=*/true)));
}

/// (C1) and (C2) of a port.
static LogicalResult verifyPort(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() != kPortAttr)
    return op->emitOpError("has an attribute ")
           << attribute.getName() << ", which the pipe dialect does not know";
  if (failed(verifyKind<PortAttr>(op, attribute)))
    return failure();
  // Without it nobody would have checked whether the function may have the
  // port.
  if (!op->hasAttr(kFunctionAttr))
    return op->emitOpError("has a port but no ") << kFunctionAttr;
  return success();
}

LogicalResult PipeDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned,
                                                    NamedAttribute attribute) {
  return verifyPort(op, attribute);
}

LogicalResult
PipeDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                         NamedAttribute attribute) {
  return verifyPort(op, attribute);
}

//===----------------------------------------------------------------------===//
// ScheduleOp
//===----------------------------------------------------------------------===//

/// Asked by the op's verifier as well: whoever calls it on a verified op may
/// rely on the result.
Result<schedule::Schedule> pipe::getSchedule(ScheduleOp op) {
  constexpr int64_t most = std::numeric_limits<uint32_t>::max();
  // The accessor is unsigned.
  int64_t count = op.getMicrobatches();
  if (count < 1 || count > most)
    return fail("count ", count, " is not in 1 … ", most);
  std::vector<std::vector<schedule::Action>> ranks;
  for (auto rank : op.getActions().getAsRange<ActionsAttr>())
    ranks.push_back(rank.getActions().vec());
  return schedule::placeActions(op.getPlacement().getProblem(count),
                                op.getKind().str(), std::move(ranks));
}

ScheduleOp pipe::findSchedule(ModuleOp module) {
  auto schedules = module.getOps<ScheduleOp>();
  return schedules.empty() ? ScheduleOp() : *schedules.begin();
}

/// Adds it at the end of the module. Peers are left to the placement.
ScheduleOp pipe::addSchedule(ModuleOp module,
                             const schedule::Schedule &schedule,
                             StringRef kind) {
  const schedule::Problem &problem = schedule.problem;
  SmallVector<Attribute> lists;
  for (std::vector<schedule::Action> actions : schedule.ranks) {
    for (schedule::Action &action : actions)
      action.peer = 0;
    lists.push_back(ActionsAttr::get(module.getContext(), actions));
  }
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  return ScheduleOp::create(
      builder, module.getLoc(), "schedule", kind,
      PlacementAttr::get(module.getContext(),
                         static_cast<Arrangement>(problem.placement),
                         problem.stages, problem.chunks),
      problem.microbatches, builder.getArrayAttr(lists));
}

/// Takes time in proportion to the actions. (C2) is what makes a schedule by
/// hand as good as a generated one: every action once, dependencies kept, no
/// deadlock.
LogicalResult ScheduleOp::verify() {
  // (C1)
  Result<schedule::Schedule> schedule = getSchedule(*this);
  if (!schedule.ok())
    return emitOpError("is none: ") << schedule.status().message();
  // (C2)
  if (Status sound = schedule::verify(*schedule); !sound.ok())
    return emitOpError("is not sound: ") << sound.message();
  return success();
}
