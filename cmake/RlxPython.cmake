# The Python module rlx.runtime._native.

# SKBUILD_SABI_COMPONENT is Development.SABIModule where the wheel has the stable ABI (pyproject.toml,
# wheel.py-api), and nothing for Python 3.11, whose stable ABI lacks what nanobind calls.
find_package(Python 3.11 REQUIRED
  COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

# For speed and not for size: what a call does with its arrays takes a tenth less time.
nanobind_add_module(_native STABLE_ABI NB_STATIC NOMINSIZE
  ${native}/bindings.cpp
  ${native}/buffers.cpp
  ${native}/communicator_bindings.cpp
  ${native}/device_meetings.cpp
  ${native}/signatures.cpp
  ${native}/function_bindings.cpp
  ${native}/pjrt/buffers.cpp
  ${native}/pjrt/client.cpp
  ${native}/pjrt/events.cpp
  ${native}/pjrt/executables.cpp
  ${native}/pjrt/pjrt_bindings.cpp
  ${native}/pjrt/table.cpp
  ${native}/pjrt/transfers.cpp
  ${native}/result_array.cpp
  ${native}/signals.cpp)
target_link_libraries(_native PRIVATE rlx_runtime)
rlx_compile_options(_native)
install(TARGETS _native LIBRARY DESTINATION rlx/runtime)
