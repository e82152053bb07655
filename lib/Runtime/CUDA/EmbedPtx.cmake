# Writes OUTPUT, which defines collectiveKernelsPtx with the bytes of INPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT}
     "#include \"CUDA/CollectiveKernels.h\"\n\n"
     "const char plait::runtime::collectiveKernelsPtx[] = {\n    ${bytes}0};\n")
