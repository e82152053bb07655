//===- MyOps.td - A dialect with one operation ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MY_OPS_TD
#define MY_OPS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "plait/Interfaces/OpInterfaces.td"

def MyDialect : Dialect {
  let name = "my";
  let summary = "Operations that plait does not have";
  let cppNamespace = "::my";
}

def My_SquareReluOp : Op<MyDialect, "square_relu", [
    Pure, SameOperandsAndResultType,
    // How it is split over ranks.
    DeclareOpInterfaceMethods<ShardableOpInterface>,
    // What it costs: by default a floating-point operation an element.
    DeclareOpInterfaceMethods<CostedOpInterface>,
    // Its gradient.
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    // Its arithmetic, in generated kernels.
    DeclareOpInterfaceMethods<FusableOpInterface>]> {
  let summary = "max(x, 0)²";
  let description = [{
    The activation of So et al. 2021, "Primer".

    Example:
    ```mlir
    %y = my.square_relu %x : tensor<2x4xf32>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[F32]>:$input);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

#endif // MY_OPS_TD
