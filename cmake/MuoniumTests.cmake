# Every tests/*/test_*.c is a cmocka program and one test; every tests/*/test_*.py
# is one test under pytest; the scripts in tools/ that check the tree and the
# built libraries are tests labelled "gate". Tests labelled "core" need no more than a
# C compiler, cmocka and SIMDe: neither MPI nor Python nor LAPACK.

# With MUONIUM_TESTS=ON, tests are left out if something that they need is missing; with ALL, as
# `make test` has it, that is an error.
function(muonium_tests_lack what)
    if(MUONIUM_TESTS STREQUAL "ALL")
        message(FATAL_ERROR "The tests need ${what}; tools/install-deps test installs them")
    endif()
    list(JOIN ARGN " " tests)
    message(STATUS "Left out for want of ${what}: ${tests}")
endfunction()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h)
else() # which only the emulation of x86's instructions includes
    set(SIMDE_INCLUDE_DIR ${PROJECT_SOURCE_DIR}/src)
endif()
find_path(LAPACKE_INCLUDE_DIR lapacke.h PATH_SUFFIXES openblas)
find_library(LAPACKE_LIBRARY lapacke)
find_library(LAPACK_LIBRARY lapack)
find_library(BLAS_LIBRARY blas)
set(MUONIUM_PYTHON /usr/bin/python3 CACHE FILEPATH "The Python that has numpy, mpmath and pytest")

# The reference libraries run on one thread: their threads would compete with
# those under test, and the thread sanitizer does not understand them.
set(test_environment
    MUONIUM_BUILD_DIR=${PROJECT_BINARY_DIR}
    MUONIUM_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    OPENBLAS_NUM_THREADS=1
    PYTHONDONTWRITEBYTECODE=1
    TSAN_OPTIONS=die_after_fork=0) # threads are started in forked children too
if(CMAKE_CROSSCOMPILING_EMULATOR) # for programs that start themselves again (tests/support/test.c)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
    list(APPEND test_environment "MUONIUM_EMULATOR=${emulator}")
endif()

function(muonium_add_test name label)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES
        LABELS "${label}" TIMEOUT 1200 ENVIRONMENT "${test_environment}")
endfunction()

# ---- C ----

file(GLOB test_programs CONFIGURE_DEPENDS tests/*/test_*.c)
file(GLOB fault_sources CONFIGURE_DEPENDS tests/faults/*.c)
if(NOT CMOCKA_FOUND)
    muonium_tests_lack("cmocka and pkg-config" "every test in C")
    set(test_programs)
endif()

if(CMOCKA_FOUND)
    add_library(muonium-test OBJECT tests/support/test.c)
    target_include_directories(muonium-test PRIVATE include src)
    target_link_libraries(muonium-test PRIVATE muonium-flags PkgConfig::CMOCKA)
endif()

# Spectra and singular values, by LAPACK.
set(with_lapack OFF)
if(LAPACKE_INCLUDE_DIR AND LAPACKE_LIBRARY AND LAPACK_LIBRARY AND BLAS_LIBRARY)
    set(with_lapack ON)
endif()
if(CMOCKA_FOUND AND with_lapack)
    add_library(muonium-test-spectra OBJECT tests/support/spectra.c)
    target_include_directories(muonium-test-spectra PRIVATE include src)
    target_include_directories(muonium-test-spectra SYSTEM PRIVATE ${LAPACKE_INCLUDE_DIR})
    target_link_libraries(muonium-test-spectra PRIVATE muonium-flags PkgConfig::CMOCKA)
endif()

# What the tests of kernels and products share. It contains kernels for
# instructions that this machine may lack; their vectors stay within the file,
# so that their ABI does not matter. Not optimised, they would take minutes.
# Integer vectors wrap around, and the emulation adds them as signed numbers.
if(CMOCKA_FOUND AND SIMDE_INCLUDE_DIR)
    file(GLOB emulated CONFIGURE_DEPENDS tests/support/emulated_*.c)
    add_library(muonium-test-kernels OBJECT ${emulated}
        tests/support/every_kernel.c tests/support/every_int8.c tests/support/matrix.c)
    target_include_directories(muonium-test-kernels PRIVATE include src)
    target_include_directories(muonium-test-kernels SYSTEM PRIVATE ${SIMDE_INCLUDE_DIR})
    target_link_libraries(muonium-test-kernels PRIVATE muonium-flags PkgConfig::CMOCKA)
    set_source_files_properties(${emulated} PROPERTIES COMPILE_OPTIONS
        "-Wno-psabi;-O2;-fwrapv;-fno-sanitize=signed-integer-overflow")
endif()

function(muonium_test_program name)
    add_executable(${name} ${ARGN} $<TARGET_OBJECTS:muonium-test>)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE include src tests/support tests)
    target_link_libraries(${name} PRIVATE muonium-flags muonium-static PkgConfig::CMOCKA
        Threads::Threads m)
endfunction()

add_custom_target(thread-tests) # what `ctest -L threads` runs
set(lacking_lapack)
set(lacking_simde)
foreach(source ${test_programs})
    get_filename_component(name ${source} NAME_WE)
    file(STRINGS ${source} mentions_kernels LIMIT_COUNT 1 REGEX "every_kernel.h|every_int8.h|matrix.h")
    file(STRINGS ${source} mentions_spectra LIMIT_COUNT 1 REGEX "\"spectra.h\"")
    if(mentions_spectra AND NOT with_lapack)
        list(APPEND lacking_lapack ${name})
        continue()
    elseif(mentions_kernels AND NOT SIMDE_INCLUDE_DIR)
        list(APPEND lacking_simde ${name})
        continue()
    endif()
    muonium_test_program(${name} ${source})
    set(labels c core)
    if(mentions_spectra)
        set(labels c)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:muonium-test-spectra>)
        target_link_libraries(${name} PRIVATE
            ${LAPACKE_LIBRARY} ${LAPACK_LIBRARY} ${BLAS_LIBRARY} m)
    endif()
    if(mentions_kernels)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:muonium-test-kernels>)
    endif()
    # One that runs commands in its own process, so that their system calls can be recorded.
    file(STRINGS ${source} mentions_commands LIMIT_COUNT 1 REGEX "\"command.h\"")
    if(mentions_commands)
        target_sources(${name} PRIVATE cli/command_step.c cli/json.c cli/message.c
            cli/optimizer_options.c cli/options.c cli/pairing.c cli/tensors.c cli/text.c cli/units.c)
        target_include_directories(${name} PRIVATE cli)
    endif()
    # One that replaces a function of the library by its own __wrap_NAME.
    file(STRINGS ${source} wrapped LIMIT_COUNT 1 REGEX "^void __wrap_")
    if(wrapped)
        string(REGEX REPLACE ".*__wrap_([a-z_]+).*" "\\1" wrapped "${wrapped}")
        target_link_options(${name} PRIVATE -Wl,--wrap=${wrapped})
    endif()
    # One that trains the model of the demo.
    file(STRINGS ${source} mentions_gpt LIMIT_COUNT 1 REGEX "\"gpt/model.h\"")
    if(mentions_gpt)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:muonium-gpt>)
        target_include_directories(${name} PRIVATE examples)
    endif()
    # One of a part of the benchmark.
    file(STRINGS ${source} mentions_replay LIMIT_COUNT 1 REGEX "\"bench/replay.h\"")
    if(mentions_replay)
        target_sources(${name} PRIVATE bench/replay.c)
        target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    endif()
    # One of the planner, which needs no MPI.
    file(STRINGS ${source} mentions_mpi_plan LIMIT_COUNT 1 REGEX "\"muonium_mpi_plan.h\"")
    if(mentions_mpi_plan)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:muonium-mpi-plan>)
    endif()
    # A program that starts threads or chooses their number is worth running under
    # the thread sanitizer, which is too slow for the others.
    file(STRINGS ${source} mentions_threads LIMIT_COUNT 1
        REGEX "muonium_set_threads|mu_pool_|pthread_create")
    if(mentions_threads)
        list(APPEND labels threads)
        add_dependencies(thread-tests ${name})
    endif()
    muonium_add_test(${name} "${labels}" ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
endforeach()
if(lacking_lapack)
    muonium_tests_lack("LAPACKE, LAPACK and BLAS" ${lacking_lapack})
endif()
if(lacking_simde)
    muonium_tests_lack("SIMDe" ${lacking_simde})
endif()

# The same products by the BLAS library, which knows nothing of ours.
if(MUONIUM_BLAS AND TARGET test_matmul)
    muonium_add_test(test_matmul-blas c $<TARGET_FILE:test_matmul>)
    set_property(TEST test_matmul-blas APPEND PROPERTY ENVIRONMENT MUONIUM_CPU=blas)
endif()

# The fault harness and the soak test. Instrumented builds are slower and do a part of them.
if(CMOCKA_FOUND)
    set(fault_options)
    set(soak_steps 200000)
    if(MUONIUM_SANITIZE OR MUONIUM_COVERAGE)
        set(fault_options --every 20)
        set(soak_steps 10000)
    endif()
    muonium_test_program(faults ${fault_sources})
    muonium_add_test(faults "c;core" ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:faults> ${fault_options})
    set_tests_properties(faults PROPERTIES TIMEOUT 600) # a minute where nothing else runs
    muonium_add_test(faults-self-check "c;core" ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:faults>
        --self-check)
    muonium_test_program(soak tests/optimizer/soak.c)
    muonium_add_test(soak c ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:soak> ${soak_steps} 600)
endif()

# ---- MPI: the same programs against both implementations, run by test_mpi.py ----

set(with_mpi_tests OFF)
if(MUONIUM_MPI AND NOT MUONIUM_SANITIZE)
    find_program(MUONIUM_MPICC_openmpi mpicc.openmpi)
    find_program(MUONIUM_MPICC_mpich mpicc.mpich)
    if(MUONIUM_MPICC_openmpi AND MUONIUM_MPICC_mpich)
        set(with_mpi_tests ON)
    else()
        muonium_tests_lack("mpicc.openmpi and mpicc.mpich" test_mpi.py)
    endif()
endif()
if(with_mpi_tests)
    file(GLOB cases_parts CONFIGURE_DEPENDS tests/mpi/case_*.c tests/mpi/interposed.c)
    foreach(implementation openmpi mpich)
        foreach(program cases victim overlap)
            muonium_mpi_program(${program}-${implementation} ${MUONIUM_MPICC_${implementation}}
                tests/mpi/${program}.c tests/mpi/model.c ${${program}_parts})
            set_target_properties(${program}-${implementation} PROPERTIES
                RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/mpi)
        endforeach()
    endforeach()
endif()

# ---- Python ----

# Those of tests/compare need packages of PyPI and are run by themselves.
file(GLOB python_tests CONFIGURE_DEPENDS tests/*/test_*.py)
list(FILTER python_tests EXCLUDE REGEX "/tests/compare/")
execute_process(COMMAND ${MUONIUM_PYTHON} -c "import mpmath, numpy, pytest"
    RESULT_VARIABLE python_lacks OUTPUT_QUIET ERROR_QUIET)
if(NOT python_lacks EQUAL 0)
    muonium_tests_lack("${MUONIUM_PYTHON} with mpmath, numpy and pytest" "every test in Python")
    set(python_tests)
endif()

# An uninstrumented interpreter can load a library with gcc's address sanitizer
# if the runtime comes first, and with no other. It keeps memory to the end by
# design, so leaks are looked for in the C tests alone.
if(MUONIUM_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so
        OUTPUT_VARIABLE asan_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(python_environment LD_PRELOAD=${asan_runtime} ASAN_OPTIONS=detect_leaks=0)
elseif(MUONIUM_SANITIZE)
    set(python_tests)
endif()
if(NOT with_mpi_tests)
    list(FILTER python_tests EXCLUDE REGEX "/test_mpi\\.py$")
endif()
foreach(source ${python_tests})
    get_filename_component(name ${source} NAME)
    file(STRINGS ${source} uses_the_build LIMIT_COUNT 1
        REGEX "MUONIUM_BUILD_DIR|^from package|^import package")
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
    find_program(MUONIUM_PYTHON3 python3)
    if(MUONIUM_PYTHON3)
        muonium_add_test(check-style gate ${tools}/check-style)
        muonium_add_test(check-layers gate ${tools}/check-layers)
        muonium_add_test(check-abi gate ${tools}/check-abi)
    else()
        muonium_tests_lack("python3" check-abi check-layers check-style)
    endif()
    if(MUONIUM_CXX)
        muonium_add_test(check-headers gate ${tools}/check-headers
            ${CMAKE_C_COMPILER} ${MUONIUM_CXX})
    else()
        muonium_tests_lack("a C++ compiler" check-headers)
    endif()
    muonium_add_test(check-symbols gate ${tools}/check-symbols ${PROJECT_BINARY_DIR})
    muonium_add_test(check-install gate ${tools}/check-install ${PROJECT_BINARY_DIR})
    muonium_add_test(check-build gate ${tools}/check-build ${CMAKE_C_COMPILER})
endif()
