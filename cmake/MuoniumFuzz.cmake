# Every fuzz/fuzz_*.c is one libFuzzer program of the same name, linked with a
# library that is instrumented too (configure with MUONIUM_SANITIZE).

if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MUONIUM_FUZZ needs clang: configure with CC=clang")
endif()
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/fuzz_*.c)
if(NOT fuzz_sources)
    message(FATAL_ERROR "MUONIUM_FUZZ is on but there is no fuzz/fuzz_*.c")
endif()
# Of the command, what reads what comes from outside. An archive, so that a target may
# have messages of its own in place of those that go to the terminal.
add_library(muonium-fuzz-command STATIC cli/message.c cli/npy.c cli/options.c
    cli/optimizer_options.c cli/text.c bench/shapes.c)
target_include_directories(muonium-fuzz-command PUBLIC include cli bench)
target_link_libraries(muonium-fuzz-command PRIVATE muonium-flags)
# Kernels read nothing from outside and would take clang two minutes: the tests instrument them.
file(GLOB kernel_sources CONFIGURE_DEPENDS src/matmul/kernels/*.c)
set_property(SOURCE ${kernel_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
foreach(target muonium-objects muonium-fuzz-command)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
endforeach()
add_custom_target(fuzzers)
foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE include src)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE muonium-flags muonium-fuzz-command muonium-static)
    add_dependencies(fuzzers ${name})
endforeach()
