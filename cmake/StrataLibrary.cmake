# strata_library(NAME DEPENDS lib... [PRECOMPILE <header>...]): the library strata_NAME from every .cpp of the current folder (not of
# sub-folders). Sources are found by globbing, so that adding a file is adding a file.
add_library(strata_warnings INTERFACE)
target_compile_options(strata_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
    -Wno-missing-field-initializers>
  # g++ 12 sees overlapping copies in "literal" + std::string (its bug 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # g++ 13 takes std::make_heap of two elements for an endless loop.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-aggressive-loop-optimizations>)
if(STRATA_SANITIZE)
  # The sanitizers' own code makes g++ take what is initialised for what may not be.
  target_compile_options(strata_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()

# Standard and library headers that most files include, parsed once per target; files still include what they use.
function(strata_precompile target)
  if(STRATA_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE <algorithm> <filesystem> <functional> <map> <memory> <optional> <set> <span> <string>
      <unordered_map> <variant> <vector> <fmt/format.h> ${ARGN})
    # Out of a precompiled header g++ 12 gives the false warning above under two more names.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow -Wno-array-bounds>)
  endif()
endfunction()

function(strata_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE;SOURCES;PRECOMPILE" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS *.cpp)
  endif()
  add_library(strata_${name} STATIC ${ARG_SOURCES})
  target_include_directories(strata_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(strata_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE} strata_warnings)
  if(ARG_PRECOMPILE)
    strata_precompile(strata_${name} ${ARG_PRECOMPILE})
  endif()
endfunction()

# Sanitizers slow the program: how many times as long as usual tests wait, and of how many requests tests of very many send one.
set(STRATA_PATIENCE 1)
set(STRATA_EACH 1)
if(STRATA_SANITIZE)
  set(STRATA_PATIENCE 5)
  set(STRATA_EACH 6)
endif()

# strata_time_limit(SECONDS test...)
function(strata_time_limit seconds)
  math(EXPR seconds "${seconds} * ${STRATA_PATIENCE}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# strata_test(NAME DEPENDS lib...): one test binary from every *_test.cpp of the current folder.
# Tests find their data under STRATA_SOURCE_DIR.
function(strata_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main strata_warnings)
  target_compile_definitions(${name}_test PRIVATE STRATA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # Tests are compiled more often than they run: the code under test keeps its optimisation, their own does without.
  target_compile_options(${name}_test PRIVATE -O1)
  strata_precompile(${name}_test <gtest/gtest.h> <gmock/gmock.h>)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  strata_time_limit(${ARG_TIMEOUT} ${name})
  set_tests_properties(${name} PROPERTIES PROCESSORS 2)  # most have a pool of threads
endfunction()

# strata_unpack(ARCHIVE FOLDER): unpacks test data when it configures, and again when the archive has changed.
function(strata_unpack archive folder)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
  file(SHA256 ${archive} hash)
  set(unpacked "")
  if(EXISTS ${folder}.unpacked)
    file(READ ${folder}.unpacked unpacked)
  endif()
  if(NOT hash STREQUAL unpacked)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder})
    file(WRITE ${folder}.unpacked ${hash})
  endif()
endfunction()
