# Builds and runs one fuzz target (see Fuzz.cmake); cmake -P with CLANG, CCACHE, INCLUDE, SOURCES, LIBRARIES, CORPUS,
# SECONDS, MAX_BYTES and WORK. Every source is compiled anew, which costs nothing where ccache is installed.
if(NOT CLANG)
  message("SKIPPED: clang++ is not installed")
  return()
endif()
file(MAKE_DIRECTORY ${WORK}/objects ${WORK}/corpus)

# The sanitizer runtimes come in a package of their own.
file(WRITE ${WORK}/probe.cpp "extern \"C\" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n")
execute_process(COMMAND ${CLANG} -fsanitize=fuzzer,address,undefined ${WORK}/probe.cpp -o ${WORK}/probe
                RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
  message("SKIPPED: ${CLANG} has no libFuzzer here")
  return()
endif()

set(objects "")
foreach(source ${SOURCES})
  string(SHA1 hash ${source})
  set(object ${WORK}/objects/${hash}.o)
  execute_process(COMMAND ${CCACHE} ${CLANG} -std=c++20 -O1 -gline-tables-only -fno-omit-frame-pointer
                          -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -I${INCLUDE}
                          -c ${source} -o ${object} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${source} does not compile")
  endif()
  list(APPEND objects ${object})
endforeach()
execute_process(COMMAND ${CLANG} -fsanitize=fuzzer,address,undefined ${objects} ${LIBRARIES} -o ${WORK}/fuzz
                RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "the fuzz target does not link")
endif()

# New inputs go to the first folder, the seeds are only read.
execute_process(COMMAND ${WORK}/fuzz -max_total_time=${SECONDS} -seed=1 -timeout=10 -rss_limit_mb=2048
                        -max_len=${MAX_BYTES} -print_final_stats=1 -verbosity=1 -artifact_prefix=${WORK}/
                        ${WORK}/corpus ${CORPUS}
                RESULT_VARIABLE failed ERROR_VARIABLE report OUTPUT_VARIABLE report)
if(failed)
  message(FATAL_ERROR "${report}")
endif()
string(REGEX MATCH "stat::number_of_executed_units: *[0-9]+" runs "${report}")
message("${runs}")
