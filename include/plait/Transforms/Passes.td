//===- Passes.td - Passes that every phase has ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_PASSES_TD
#define PLAIT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"
include "plait/Transforms/ExpertPasses.td"
include "plait/Transforms/ImportPasses.td"
include "plait/Transforms/ModelPasses.td"
include "plait/Transforms/RankPasses.td"
include "plait/Transforms/StepPasses.td"

//===----------------------------------------------------------------------===//
// What a module is compiled for. A pass that needs to know asks the module: no
// option repeats a field of its configuration.
//===----------------------------------------------------------------------===//

def ConfigurePass : Pass<"plait-configure", "::mlir::ModuleOp"> {
  let summary = "Set fields of the module's configuration";
  let description = [{
    Has one option for each field of `#plait.configuration`, under the name that
    plaitc's option has: `--plait-configure="schedule=gpipe layers=2,1"`. Fields
    that are not given stay as they are. Fails where a value is none of its
    field.

    For tests and for work by hand; `plaitc` writes the same attribute from its
    options.

    Example:
    ```mlir
    // plait-opt --plait-configure="schedule=gpipe layers=2,1"
    module attributes {plait.configuration = #plait.configuration<layers = [3], seq = 32>} {
    }
    ```
    becomes
    ```mlir
    module attributes {plait.configuration = #plait.configuration<schedule = "gpipe", layers = [2, 1], seq = 32>} {
    }
    ```
  }];
  let dependentDialects = ["::plait::PlaitDialect"];
}

def BeginPhasePass : Pass<"plait-begin-phase", "::mlir::ModuleOp"> {
  let summary = "Check what a phase relies on";
  let description = [{
    Fails unless the phase before `phase` is the last that is complete
    (`plait.phase`), and unless the module is what `plait-verify-phase` expects
    of that. Reads `plait.origin` into the locations of ops.

    The first pass of every phase. It is not for changing IR: what goes on from a
    dump, edited or not, begins where the dump ended.

    Example:
    ```mlir
    // plait-opt --plait-begin-phase=phase=stage
    #rows = #dist.sharding<@mesh, [{"dp"} ]>
    module attributes {plait.phase = #plait.phase<shard>} {
      dist.mesh @mesh ["dp"] = [2]
      func.func @loss(%x: tensor<4xf32, #rows>) -> tensor<4xf32, #rows> {
        %y = nn.exp %x {plait.origin = "softmax"} : tensor<4xf32, #rows>
        return %y : tensor<4xf32, #rows>
      }
    }
    ```
    becomes, since the name is the op's location now,
    ```mlir
    %0 = nn.exp %arg0 : …
    ```
  }];
  let options = [Option<"phase", "phase", "std::string", "\"shard\"",
                        "the phase that begins">];
}

def VerifyPhasePass : Pass<"plait-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Check that a module is what its phase leaves";
  let description = [{
    Changes nothing. Verifies of the phase that `plait.phase` names what the next
    one relies on and no operation's verifier sees, in particular of IR that was
    written by hand:

    - (P1) after `import`: (L1) to (L4) of the `nn` dialect hold, for the
      vocabulary that `plait.model` names: `@loss` trains what is meant; every
      value of the configuration can be executed; and `@loss` is for a microbatch of
      it, where there is one.
    - (P2) after `shard`: there is a mesh, and every tensor in `@loss` has a
      sharding, as every parameter has from then on.
    - (P3) after `stage` up to `lower`: each virtual stage of the placement has
      the functions that its phase makes: forward; joint; forward and backward
      (or backward_input and backward_weight). The placement is for the mesh.
    - (P4) after `partition`: no tensor has a sharding, and each rank has the
      functions reduce and optimizer.
    - (P5) after `schedule`: there is one `pipe.schedule`, for the module's
      placement and as many microbatches as the configuration says.
    - (P6) after `lower`: each rank of the pipeline has a `plan.program`, of the
      actions that the schedule has for it, which call functions that do that.
    - (P7) after `steps`: programs call functions of steps, each its own, bind as many
      bytes as their slots have, and have the buffers that the steps name.
    - (P8) before `steps`: every function has one block, of tensors of static shape.
    - (P9) always: the configuration is what the phases up to here have read of it
      (see `#plait.phase`); what is read later may have been edited.
    - (P10) after `shard`: what tokens and targets select from has on all ranks
      together an entry for each of the vocabulary.

    Part of `plait-begin-phase`, and there for IR that is edited by hand.

    Example:
    ```mlir
    module attributes {plait.phase = #plait.phase<shard>} {
      dist.mesh @mesh ["dp"] = [2]
      func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
        return %x : tensor<4xf32>
      }
    }
    // error: value of type 'tensor<4xf32>' has no sharding after phase shard
    ```
  }];
}

def EndPhasePass : Pass<"plait-end-phase", "::mlir::ModuleOp"> {
  let summary = "Say that a phase is complete";
  let description = [{
    Sets `plait.phase`, with what has been read of configuration, mesh, target
    and cluster.
    With `keep-origins`, also `plait.origin` of ops with a name in their location,
    for IR that is to be written.

    The last pass of every phase.

    Example:
    ```mlir
    // plait-opt --plait-end-phase=phase=stage
    module attributes {plait.phase = #plait.phase<shard>} {
    }
    ```
    becomes
    ```mlir
    module attributes {plait.phase = #plait.phase<stage, read = <>>} {
    }
    ```
  }];
  let options = [Option<"phase", "phase", "std::string", "\"shard\"",
                        "the phase that is complete">,
                 Option<"keepOrigins", "keep-origins", "bool", "true",
                        "write names of locations as attributes">];
  let dependentDialects = ["::plait::PlaitDialect"];
}

#endif // PLAIT_TRANSFORMS_PASSES_TD
