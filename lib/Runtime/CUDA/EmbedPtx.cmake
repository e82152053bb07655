# Writes OUTPUT, which defines NAME, declared in HEADER, with the PTX in INPUT.
# NVCC writes the newest version of PTX that it knows, which drivers older than
# it refuse to compile, also those of its own major version that run everything
# else. These kernels need no more than plans do: 8.1, CUDA 12.1. Where NVCC's
# assembler finds something newer in them, they stay as they are.
file(READ ${INPUT} text)
string(REGEX REPLACE "\\.version [0-9.]+" ".version 8.1" lowered "${text}")
file(WRITE ${INPUT}.lowered.ptx "${lowered}")
execute_process(
  COMMAND ${NVCC} -cubin -arch=sm_80 -o ${INPUT}.cubin ${INPUT}.lowered.ptx
  RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
if(refused)
  file(READ ${INPUT} bytes HEX)
else()
  file(READ ${INPUT}.lowered.ptx bytes HEX)
endif()
string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT}
     "#include \"CUDA/${HEADER}\"\n\n"
     "const char plait::runtime::${NAME}[] = {\n    ${bytes}0};\n")
