# strata_fuzz(NAME SOURCES file... [LIBRARIES -lx...] [CORPUS folder] [SECONDS n] [MAX_BYTES n])
# A libFuzzer target as a test: `fuzz_NAME` compiles SOURCES (the target and the files of src/ it needs; relative to the
# current folder, or to src/) with clang under AddressSanitizer and UndefinedBehaviorSanitizer, and runs it SECONDS
# seconds (30) from the seeds in CORPUS (corpus/NAME). Where clang or its libFuzzer is absent the test is reported as
# skipped. A crashing input is kept in the build folder, and its path printed.
find_program(STRATA_FUZZ_CLANG NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19)

function(strata_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS;SECONDS;MAX_BYTES" "SOURCES;LIBRARIES" ${ARGN})
  set(sources "")
  foreach(source ${ARG_SOURCES})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
      list(APPEND sources ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    elseif(EXISTS ${PROJECT_SOURCE_DIR}/src/${source})
      list(APPEND sources ${PROJECT_SOURCE_DIR}/src/${source})
    else()
      message(FATAL_ERROR "strata_fuzz(${name}): ${source} does not exist")
    endif()
  endforeach()
  if(NOT ARG_CORPUS)
    set(ARG_CORPUS corpus/${name})
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 30)
  endif()
  if(NOT ARG_MAX_BYTES)
    set(ARG_MAX_BYTES 4096)
  endif()
  add_test(NAME fuzz_${name} COMMAND ${CMAKE_COMMAND}
    "-DCLANG=${STRATA_FUZZ_CLANG}" "-DCCACHE=${CCACHE}" "-DINCLUDE=${PROJECT_SOURCE_DIR}/src" "-DSOURCES=${sources}"
    "-DLIBRARIES=${ARG_LIBRARIES}" -DCORPUS=${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS} -DSECONDS=${ARG_SECONDS}
    -DMAX_BYTES=${ARG_MAX_BYTES} -DWORK=${CMAKE_CURRENT_BINARY_DIR}/${name} -P ${PROJECT_SOURCE_DIR}/cmake/RunFuzz.cmake)
  math(EXPR timeout "${ARG_SECONDS} + 600")
  set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT ${timeout} LABELS fuzz SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endfunction()
