# Writes OUTPUT, a C++ file that holds the text of all FILES (a list).
set(entries "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"hardware(${text})hardware\"},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Generated from lib/Planner/Cluster/hardware/*.json.
#include \"Cluster/Hardware.h\"

const std::map<std::string, std::string_view> &
plait::planner::getEmbeddedHardware() {
  static const std::map<std::string, std::string_view> files = {
${entries}  };
  return files;
}
")
