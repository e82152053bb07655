//===- PlaitAttrs.td - Attributes of the plait dialect -----*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAIT_IR_PLAITATTRS_TD
#define PLAIT_DIALECT_PLAIT_IR_PLAITATTRS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def PlaitDialect : Dialect {
  let name = "plait";
  let summary = "What a module is compiled for";
  let description = [{
    Everything that passes need to know beside the operations is an attribute of
    the module, so that the dump of any phase compiles on to the same plan:

    - `plait.configuration`, a `#plait.configuration`: what was chosen. A module
      without it has every field at its default.
    - `plait.phase`, a `#plait.phase`: the last phase that is complete, and what
      was read until then. A module without it is a model: `import` is.
    - `plait.target`, a `#plait.target`: what executes the plan. A module without
      it is for processors.
    - `plait.cluster`, a `#plait.cluster`: the machines and how fast they are, where
      they are known.
    - `plait.model`, a dictionary: the name, type, vocabulary and number of layers
      of the model.
    - `plait.model_flops`, an f64 of 0 or more: what the model needs for a
      microbatch of all data-parallel ranks, forward and backward.
    - `plait.config_json`, a string: the file that the model came from, as it was.

    On any op, `plait.origin` (a string) is the part of the model that it comes
    from. It stands for the name in the op's location, which IR is written
    without; a phase reads it into the location when it begins.
  }];
  let cppNamespace = "::plait";
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

class Plait_Attr<string name, string word> : AttrDef<PlaitDialect, name> {
  let mnemonic = word;
}

def Plait_PhaseEnum : I32EnumAttr<"Phase", "a phase of a compilation, in order", [
    I32EnumAttrCase<"Import", 0, "import">,
    I32EnumAttrCase<"Shard", 1, "shard">,
    I32EnumAttrCase<"Stage", 2, "stage">,
    I32EnumAttrCase<"Differentiate", 3, "differentiate">,
    I32EnumAttrCase<"Checkpoint", 4, "checkpoint">,
    I32EnumAttrCase<"Partition", 5, "partition">,
    I32EnumAttrCase<"Schedule", 6, "schedule">,
    I32EnumAttrCase<"Lower", 7, "lower">,
    I32EnumAttrCase<"Steps", 8, "steps">,
    I32EnumAttrCase<"Plan", 9, "plan">]> {
  let cppNamespace = "::plait";
  let genSpecializedAttr = 0;
}
def Plait_ConfigurationAttr : Plait_Attr<"Configuration", "configuration"> {
  let summary = "How a training is to be run, beside its mesh";
  let description = [{
    The fields of plait/Configuration/Configuration.h, each written at most once,
    in any order; those at their default need not be written.

    Constraints:
    - (C1) a field is one of the list.
    - (C2) a field is given once.
    - (C3) its value is of the field's type: a number, a list of numbers in
      brackets, a string, true or false, or one of the field's words.
    - (C4) numbers are 1 to 16,777,216, those of `layers` 0 to that, and `zero` is
      0 to 3.
    - (C5) `schedule` is the name of a generator.

    Whether a value can be executed is not a constraint: see getExecutable().

    Example:
    ```mlir
    #plait.configuration<schedule = "gpipe", layers = [2, 1], recompute = full>
    ```
  }];
  // The text that plait::print makes of the fields: equal configurations are
  // the same attribute.
  let parameters = (ins StringRefParameter<"the fields">:$fields);
  let builders = [
    AttrBuilder<(ins "const ::plait::TrainingConfiguration &":$configuration), [{
      return $_get($_ctxt, ::plait::print(configuration));
    }]>,
  ];
  let extraClassDeclaration = [{
    ::plait::TrainingConfiguration getValue() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Plait_TargetKindEnum : I32EnumAttr<"TargetKind", "what executes a plan", [
    I32EnumAttrCase<"CPU", 0, "cpu">,
    I32EnumAttrCase<"CUDA", 1, "cuda">]> {
  let cppNamespace = "::plait";
  let genSpecializedAttr = 0;
}

def Plait_TargetAttr : Plait_Attr<"Target", "target"> {
  let summary = "What code is generated for";
  let description = [{
    Of a processor, its name and features as LLVM writes them. Of GPUs, the least
    architecture (whose PTX later ones compile too), the one to assemble for, and
    the bytes of a device's memory that context and libraries take.

    Constraints:
    - (C1) a processor has no `cubin` and no `reserved` bytes, and GPUs have no
      `features`.
    - (C2) architectures of GPUs are "sm_" and a number; `name` is not empty.

    Example: `#plait.target<cpu, name = "x86-64-v4">`,
    `#plait.target<cuda, name = "sm_80", cubin = "sm_90", reserved = 1000000>`.
  }];
  let parameters = (ins
    EnumParameter<Plait_TargetKindEnum>:$kind,
    StringRefParameter<"processor, or least architecture">:$name,
    StringRefParameter<"of a processor", "\"\"">:$features,
    StringRefParameter<"architecture to assemble for", "\"\"">:$cubin,
    DefaultValuedParameter<"uint64_t", "0">:$reserved);
  let assemblyFormat = [{
    `<` $kind `,` struct($name, $features, $cubin, $reserved) `>`
  }];
  let extraClassDeclaration = [{
    bool isGPU() const { return getKind() == TargetKind::CUDA; }
    /// The least architecture of a GPU as a number, 80 for sm_80; 0 for
    /// processors.
    int getArchitecture() const;
  }];
  let genVerifyDecl = 1;
}

def Plait_LinkAttr : Plait_Attr<"Link", "link"> {
  let summary = "What the ranks along a mesh axis reach each other over";
  let description = [{
    A collective among them takes `latency` seconds and, for what one of them sends,
    `bandwidth` bytes a second. Where `axis` is empty, this is the link of all axes
    that have none of their own.

    Constraints:
    - (C1) the latency is 0 or more, the bandwidth positive.

    Example: `#plait.link<axis = "tp", latency = 4.0e-05 : f64, bandwidth = 4.2e+11 : f64>`.
  }];
  let parameters = (ins
    StringRefParameter<"of the mesh", "\"\"">:$axis,
    "::mlir::FloatAttr":$latency, "::mlir::FloatAttr":$bandwidth);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Of a collective of which each member sends `bytes`, and of those alone.
    double getSeconds(double bytes) const;
    double getWireSeconds(double bytes) const;
  }];
  let genVerifyDecl = 1;
}

def Plait_RatesAttr : Plait_Attr<"Rates", "rates"> {
  let summary = "How fast devices compute and exchange data";
  let description = [{
    What passes weigh work against communication by: the operations a second that
    large GEMMs reach in the precision that is trained in, the bytes a second that
    large kernels move through the device's memory, and the links of the mesh's axes.
    `gemm_units` are the multiprocessors that compute tiles of a GEMM side by side;
    without them, nothing is lost where a GEMM is cut.

    Constraints:
    - (C1) the rates are positive.
    - (C2) `links` are `#plait.link`s, one for an axis at most.
    - (C3) there are no fewer than 0 units.

    Example:
    ```mlir
    #plait.rates<gemm_flops = 7.3e+14 : f64, memory_bandwidth = 3.0e+12 : f64, links = [#plait.link<axis = "tp", latency = 4.0e-05 : f64, bandwidth = 4.2e+11 : f64>]>
    ```
  }];
  let parameters = (ins
    "::mlir::FloatAttr":$gemm_flops, "::mlir::FloatAttr":$memory_bandwidth,
    "::mlir::ArrayAttr":$links,
    DefaultValuedParameter<"int64_t", "0">:$gemm_units);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Of GEMMs of `flops` operations; of kernels that move `bytes`.
    double getGemmSeconds(double flops) const;
    double getMemorySeconds(double bytes) const;
    /// Of the axis, or of all that have none of their own; null: there is none.
    LinkAttr findLink(::llvm::StringRef axis) const;
  }];
  let genVerifyDecl = 1;
}

def Plait_ClusterAttr : Plait_Attr<"Cluster", "cluster"> {
  let summary = "The machines that a plan is for";
  let description = [{
    Bytes are those of one device: what it has, and what of it context and
    libraries take. `peak_flops` is what it computes in a second at most, in the
    precision that is trained in; `rates` is what it reaches, and its links, for
    the mesh of the module. Without them passes assume what getRates() says.

    Constraints:
    - (C1) nodes, devices of a node, memory and peak are positive.
    - (C2) less is reserved than there is memory.

    Example:
    ```mlir
    #plait.cluster<name = "h100:2x8", device = "H100 SXM", nodes = 2, devices_per_node = 8, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64>
    ```
  }];
  let parameters = (ins
    StringRefParameter<"as it was asked for">:$name,
    StringRefParameter<"model">:$device,
    "int64_t":$nodes, "int64_t":$devices_per_node,
    "uint64_t":$memory, "uint64_t":$reserved,
    "::mlir::FloatAttr":$peak_flops,
    OptionalParameter<"::plait::RatesAttr">:$rates);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Plait_PhaseAttr : Plait_Attr<"Phase", "phase"> {
  let summary = "How far a module has been compiled";
  let description = [{
    The last phase that is complete, and what it and those before it have read: of
    the configuration (fields that are `read` later are at their default), the
    `mesh` as --mesh writes it, the `cluster` if there was one, and from `lower` on
    the `target`. By it an edit that came too late is refused. After `import`, which
    reads nothing, and in IR that was written by hand, there is none.

    Example: `#plait.phase<shard>`,
    `#plait.phase<checkpoint, read = <recompute = full, seq = 32>, mesh = "pp=2,tp=2">`.
  }];
  let parameters = (ins
    EnumParameter<Plait_PhaseEnum>:$value,
    OptionalParameter<"::plait::ConfigurationAttr">:$read,
    StringRefParameter<"axes and sizes", "\"\"">:$mesh,
    OptionalParameter<"::plait::TargetAttr">:$target,
    OptionalParameter<"::plait::ClusterAttr">:$cluster);
  let assemblyFormat = [{
    `<` $value (`,` struct($read, $mesh, $target, $cluster)^)? `>`
  }];
}

#endif // PLAIT_DIALECT_PLAIT_IR_PLAITATTRS_TD
