# Makes an archive one object, with the C++ library in it and nothing visible but the C interface: it
# then links into any program, whatever C++ library that has, or none. A script: ARCHIVE, LIBRARIES,
# LINKER, OBJCOPY and AR are given.

set(object "${ARCHIVE}.o")
execute_process(
  COMMAND "${LINKER}" -r --force-group-allocation -o "${object}"
    --whole-archive "${ARCHIVE}" --no-whole-archive --start-group ${LIBRARIES} --end-group
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${OBJCOPY}" --wildcard --keep-global-symbol=rlx_* --strip-unneeded "${object}"
  COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE "${ARCHIVE}")
execute_process(COMMAND "${AR}" qcs "${ARCHIVE}" "${object}" COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE "${object}")
