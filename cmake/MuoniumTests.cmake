# Every tests/test_*.c is a cmocka program and one test; every tests/test_*.py
# is one test under pytest; the scripts in tools/ that check the tree and the
# built libraries are tests labelled "gate".

find_package(PkgConfig REQUIRED)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
find_path(LAPACKE_INCLUDE_DIR lapacke.h PATH_SUFFIXES openblas REQUIRED)
find_library(LAPACKE_LIBRARY lapacke REQUIRED)
find_library(LAPACK_LIBRARY lapack REQUIRED)
find_library(BLAS_LIBRARY blas REQUIRED)
find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h REQUIRED)
set(MUONIUM_PYTHON /usr/bin/python3 CACHE FILEPATH "The Python that has numpy and pytest")

# The reference libraries run on one thread: their threads would compete with
# those under test, and the thread sanitizer does not understand them.
set(test_environment
    MUONIUM_BUILD_DIR=${PROJECT_BINARY_DIR}
    MUONIUM_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    OPENBLAS_NUM_THREADS=1
    PYTHONDONTWRITEBYTECODE=1
    TSAN_OPTIONS=die_after_fork=0) # threads are started in forked children too

function(muonium_add_test name label)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES
        LABELS "${label}" TIMEOUT 1200 ENVIRONMENT "${test_environment}")
endfunction()

# ---- C ----

add_library(muonium-test OBJECT tests/test.c tests/spectra.c)
target_include_directories(muonium-test PRIVATE include src)
target_include_directories(muonium-test SYSTEM PRIVATE ${LAPACKE_INCLUDE_DIR})
target_link_libraries(muonium-test PRIVATE muonium-flags PkgConfig::CMOCKA)

# What the tests of kernels and products share. It contains kernels for
# instructions that this machine may lack; their vectors stay within the file,
# so that their ABI does not matter. Not optimised, they would take minutes.
# Integer vectors wrap around, and the emulation adds them as signed numbers.
add_library(muonium-test-kernels OBJECT
    tests/emulated_avx512.c tests/every_kernel.c tests/matrix.c)
target_include_directories(muonium-test-kernels PRIVATE include src tests)
target_include_directories(muonium-test-kernels SYSTEM PRIVATE ${SIMDE_INCLUDE_DIR})
target_link_libraries(muonium-test-kernels PRIVATE muonium-flags PkgConfig::CMOCKA)
set_source_files_properties(tests/emulated_avx512.c PROPERTIES COMPILE_OPTIONS
    "-Wno-psabi;-O2;-fwrapv;-fno-sanitize=signed-integer-overflow")

file(GLOB test_programs CONFIGURE_DEPENDS tests/test_*.c)
add_custom_target(thread-tests) # what `ctest -L threads` runs
foreach(source ${test_programs})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source} $<TARGET_OBJECTS:muonium-test>)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE include src tests)
    target_include_directories(${name} SYSTEM PRIVATE ${LAPACKE_INCLUDE_DIR})
    target_link_libraries(${name} PRIVATE muonium-flags muonium-static PkgConfig::CMOCKA
        ${LAPACKE_LIBRARY} ${LAPACK_LIBRARY} ${BLAS_LIBRARY} m)
    file(STRINGS ${source} mentions_kernels LIMIT_COUNT 1 REGEX "every_kernel.h|matrix.h")
    if(mentions_kernels)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:muonium-test-kernels>)
    endif()
    # One that runs commands in its own process, so that their system calls can be recorded.
    file(STRINGS ${source} mentions_commands LIMIT_COUNT 1 REGEX "\"command.h\"")
    if(mentions_commands)
        target_sources(${name} PRIVATE cli/choices.c cli/command_step.c cli/json.c cli/message.c
            cli/optimizer_options.c cli/options.c cli/pairing.c cli/tensors.c cli/text.c cli/units.c)
        target_include_directories(${name} PRIVATE cli)
    endif()
    # A program that starts threads or chooses their number is worth running under
    # the thread sanitizer, which is too slow for the others.
    file(STRINGS ${source} mentions_threads LIMIT_COUNT 1
        REGEX "muonium_set_threads|mu_pool_|pthread_create")
    if(mentions_threads)
        muonium_add_test(${name} "c;threads" $<TARGET_FILE:${name}>)
        add_dependencies(thread-tests ${name})
    else()
        muonium_add_test(${name} c $<TARGET_FILE:${name}>)
    endif()
endforeach()

# The same products by the BLAS library, which knows nothing of ours.
if(MUONIUM_BLAS)
    muonium_add_test(test_matmul-blas c $<TARGET_FILE:test_matmul>)
    set_property(TEST test_matmul-blas APPEND PROPERTY ENVIRONMENT MUONIUM_CPU=blas)
endif()

# The fault harness. Instrumented builds are slower and inject a part of the faults.
file(GLOB fault_sources CONFIGURE_DEPENDS tests/faults/*.c)
add_executable(faults ${fault_sources} $<TARGET_OBJECTS:muonium-test>)
set_target_properties(faults PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(faults PRIVATE include src tests)
target_include_directories(faults SYSTEM PRIVATE ${LAPACKE_INCLUDE_DIR})
target_link_libraries(faults PRIVATE muonium-flags muonium-static PkgConfig::CMOCKA
    ${LAPACKE_LIBRARY} ${LAPACK_LIBRARY} ${BLAS_LIBRARY} Threads::Threads m)
set(fault_options)
if(MUONIUM_SANITIZE OR MUONIUM_COVERAGE)
    set(fault_options --every 20)
endif()
muonium_add_test(faults c $<TARGET_FILE:faults> ${fault_options})
set_tests_properties(faults PROPERTIES TIMEOUT 600) # a minute where nothing else runs
muonium_add_test(faults-self-check c $<TARGET_FILE:faults> --self-check)

# The soak test: the full 200,000 steps where nothing slows them down.
add_executable(soak tests/soak.c $<TARGET_OBJECTS:muonium-test>)
set_target_properties(soak PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(soak PRIVATE include src tests)
target_include_directories(soak SYSTEM PRIVATE ${LAPACKE_INCLUDE_DIR})
target_link_libraries(soak PRIVATE muonium-flags muonium-static PkgConfig::CMOCKA
    ${LAPACKE_LIBRARY} ${LAPACK_LIBRARY} ${BLAS_LIBRARY} Threads::Threads m)
set(soak_steps 200000)
if(MUONIUM_SANITIZE OR MUONIUM_COVERAGE)
    set(soak_steps 10000)
endif()
muonium_add_test(soak c $<TARGET_FILE:soak> ${soak_steps} 600)

# ---- MPI: the same programs against both implementations, run by test_mpi.py ----

if(MUONIUM_MPI AND NOT MUONIUM_SANITIZE)
    foreach(implementation openmpi mpich)
        find_program(MUONIUM_MPICC_${implementation} mpicc.${implementation} REQUIRED)
        foreach(program cases victim overlap)
            muonium_mpi_program(${program}-${implementation} ${MUONIUM_MPICC_${implementation}}
                tests/mpi/${program}.c tests/mpi/model.c)
            set_target_properties(${program}-${implementation} PROPERTIES
                RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/mpi)
        endforeach()
    endforeach()
endif()

# ---- Python ----

# An uninstrumented interpreter can load a library with gcc's address sanitizer
# if the runtime comes first, and with no other. It keeps memory to the end by
# design, so leaks are looked for in the C tests alone.
file(GLOB python_tests CONFIGURE_DEPENDS tests/test_*.py)
if(MUONIUM_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so
        OUTPUT_VARIABLE asan_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(python_environment LD_PRELOAD=${asan_runtime} ASAN_OPTIONS=detect_leaks=0)
elseif(MUONIUM_SANITIZE)
    set(python_tests)
endif()
if(MUONIUM_SANITIZE OR NOT MUONIUM_MPI)
    list(FILTER python_tests EXCLUDE REGEX "/test_mpi\\.py$")
endif()
foreach(source ${python_tests})
    get_filename_component(name ${source} NAME)
    file(STRINGS ${source} uses_the_build LIMIT_COUNT 1 REGEX "MUONIUM_BUILD_DIR")
    file(STRINGS ${source} uses_torch LIMIT_COUNT 1 REGEX "^import torch|importorskip.*torch")
    if(MUONIUM_SANITIZE AND (NOT uses_the_build OR uses_torch OR name STREQUAL test_optimizer.py))
        continue() # it tests the reference alone, or a framework that is not instrumented; or
    endif()        # runs for minutes over code that others run too
    muonium_add_test(${name} python ${MUONIUM_PYTHON} -m pytest -q -p no:cacheprovider ${source})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${python_environment})
endforeach()

# ---- gates ----

# Instrumented libraries carry names and needs of their own. The format is not
# among these: it depends on the version of clang-format, which .ci/run fixes.
if(NOT MUONIUM_SANITIZE AND NOT MUONIUM_COVERAGE)
    set(tools ${PROJECT_SOURCE_DIR}/tools)
    find_program(MUONIUM_CXX NAMES g++ c++ clang++)
    if(NOT MUONIUM_CXX)
        message(FATAL_ERROR "The tests need a C++ compiler to check that muonium.h compiles as C++")
    endif()
    muonium_add_test(check-style gate ${tools}/check-style)
    muonium_add_test(check-layers gate ${tools}/check-layers)
    muonium_add_test(check-headers gate ${tools}/check-headers ${CMAKE_C_COMPILER} ${MUONIUM_CXX})
    muonium_add_test(check-symbols gate ${tools}/check-symbols ${PROJECT_BINARY_DIR})
    muonium_add_test(check-install gate ${tools}/check-install ${PROJECT_BINARY_DIR})
    muonium_add_test(check-build gate ${tools}/check-build ${CMAKE_C_COMPILER})
endif()
