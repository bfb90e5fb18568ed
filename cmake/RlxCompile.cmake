# How every target of the project is compiled.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(known_sanitizers "" address thread undefined "address,undefined")
if(NOT RLX_SANITIZE IN_LIST known_sanitizers)
  message(FATAL_ERROR
    "RLX_SANITIZE is '${RLX_SANITIZE}', expected address, thread, undefined or nothing")
endif()

function(rlx_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  if(RLX_SANITIZE)
    set(flags -fsanitize=${RLX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    target_compile_options(${target} PRIVATE ${flags})
    target_link_options(${target} PUBLIC ${flags})
  endif()
endfunction()
