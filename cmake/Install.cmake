# What `cmake --install` puts where, and how other projects find plait with
# find_package(Plait): in the build folder or where it was installed. See
# examples/custom-op.
include(GNUInstallDirs)

get_property(tools GLOBAL PROPERTY PLAIT_TOOLS)
install(TARGETS ${tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The library for C and what programs find it by: find_package(PlaitC) or
# pkg-config. A component of its own, so that it can be installed alone.
if(TARGET plait)
  install(TARGETS plait EXPORT PlaitCConfig
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c)
  install(FILES ${PROJECT_SOURCE_DIR}/include/plait-c/plait.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plait-c COMPONENT c)
  install(EXPORT PlaitCConfig NAMESPACE plait::
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/PlaitC COMPONENT c)
  file(RELATIVE_PATH PLAIT_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(cmake/plait.pc.in plait.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/plait.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
endif()

# Libraries, headers and modules are for projects that add to the compiler.
if(NOT PLAIT_BUILD_COMPILER)
  return()
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Plait)

get_property(libraries GLOBAL PROPERTY PLAIT_LIBRARIES)
export(TARGETS ${libraries} FILE ${PROJECT_BINARY_DIR}/PlaitTargets.cmake)
install(TARGETS ${libraries} EXPORT PlaitTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT PlaitTargets DESTINATION ${package})

# The generated headers lie beside the others.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/plait
                  ${PROJECT_BINARY_DIR}/include/plait
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.h PATTERN *.td PATTERN *.inc
        PATTERN CMakeFiles EXCLUDE)
install(FILES cmake/modules/AddPlait.cmake cmake/modules/FindMLIR22.cmake
        DESTINATION ${package})

# One file for both: paths of the build, or relative to where it lies.
set(PLAIT_MODULES ${PROJECT_SOURCE_DIR}/cmake/modules)
set(PLAIT_INCLUDES
    "${PROJECT_SOURCE_DIR}/include\" \"${PROJECT_BINARY_DIR}/include")
configure_file(cmake/PlaitConfig.cmake.in PlaitConfig.cmake @ONLY)
file(RELATIVE_PATH up /${package} /${CMAKE_INSTALL_INCLUDEDIR})
set(PLAIT_MODULES "\${CMAKE_CURRENT_LIST_DIR}")
set(PLAIT_INCLUDES "\${CMAKE_CURRENT_LIST_DIR}/${up}")
configure_file(cmake/PlaitConfig.cmake.in installed/PlaitConfig.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/installed/PlaitConfig.cmake
        DESTINATION ${package})
