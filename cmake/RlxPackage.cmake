# What C and C++ programs build with: the libraries, their header, and a package for find_package.

include(CMakePackageConfigHelpers)

# In a wheel everything lies in the Python package's directory.
set(package_root "")
if(SKBUILD)
  set(package_root "rlx/")
endif()
set(package_dir "${package_root}lib/cmake/rlx")

set(libraries rlx_runtime)
set_target_properties(rlx_runtime PROPERTIES EXPORT_NAME rlx)
if(RLX_BUILD_SHARED)
  add_library(rlx_shared SHARED $<TARGET_OBJECTS:rlx_runtime>)
  set_target_properties(rlx_shared PROPERTIES
    OUTPUT_NAME rlx EXPORT_NAME rlx_shared SOVERSION ${PROJECT_VERSION_MAJOR}
    LINKER_LANGUAGE CXX)
  target_link_libraries(rlx_shared PRIVATE Threads::Threads)
  if(NOT APPLE)
    # The templates of the C++ library are no part of the interface.
    target_link_options(rlx_shared PRIVATE
      "LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/rlx.map")
    set_target_properties(rlx_shared PROPERTIES LINK_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/rlx.map")
  endif()
  list(APPEND libraries rlx_shared)
endif()

foreach(library IN LISTS libraries)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${package_root}include>)
endforeach()
install(TARGETS ${libraries} EXPORT rlxTargets
  ARCHIVE DESTINATION ${package_root}lib LIBRARY DESTINATION ${package_root}lib)
install(FILES ${native}/rlx.h ${native}/rlx.hpp DESTINATION ${package_root}include)
install(EXPORT rlxTargets NAMESPACE rlx:: DESTINATION ${package_dir})

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/rlxConfig.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/rlxConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/rlxConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/rlxConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/rlxConfigVersion.cmake"
  DESTINATION ${package_dir})

if(RLX_CXX_ARCHIVES)
  find_program(RLX_LINKER ld REQUIRED)
  find_program(RLX_OBJCOPY objcopy REQUIRED)
  set(one_object "${CMAKE_CURRENT_LIST_DIR}/RlxOneObject.cmake")
  install(CODE "
    execute_process(
      COMMAND \"${CMAKE_COMMAND}\" \"-DLIBRARIES=${RLX_CXX_ARCHIVES}\"
        \"-DLINKER=${RLX_LINKER}\" \"-DOBJCOPY=${RLX_OBJCOPY}\" \"-DAR=${CMAKE_AR}\"
        \"-DARCHIVE=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${package_root}lib/librlx.a\"
        -P \"${one_object}\"
      COMMAND_ERROR_IS_FATAL ANY)")
endif()

# pkg-config: the static library, with the system's that it needs; `rlx config` reads it there.
set(RLX_SYSTEM_LIBRARIES "-lpthread -ldl -lm")
if(APPLE)
  set(RLX_SYSTEM_LIBRARIES "-lc++")
elseif(NOT RLX_CXX_ARCHIVES)
  string(PREPEND RLX_SYSTEM_LIBRARIES "-lstdc++ ")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/rlx.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/rlx.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rlx.pc" DESTINATION ${package_root}lib/pkgconfig)
