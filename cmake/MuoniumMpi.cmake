# libmuonium_mpi: a second library, for programs that use MPI. It is built where there is an
# MPI (MUONIUM_MPI=AUTO), always (ON) or never (OFF, as within another project). The shared one is
# linked with the shared libmuonium, whose internals it reaches through a table of functions
# (src/private/private.h); the static one goes with the static one and needs no table. A program
# links both libraries of one kind and one version.

set(MUONIUM_MPI ${default_mpi} CACHE STRING "Build libmuonium_mpi: ON, OFF, or AUTO where there is an MPI")
set_property(CACHE MUONIUM_MPI PROPERTY STRINGS AUTO ON OFF)
if(MUONIUM_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS C)
elseif(MUONIUM_MPI)
    find_package(MPI REQUIRED COMPONENTS C)
endif()
set(muonium_with_mpi OFF)
if(MUONIUM_MPI AND MPI_C_FOUND)
    set(muonium_with_mpi ON)
endif()

file(GLOB mpi_sources CONFIGURE_DEPENDS src/mpi/*.c)

if(muonium_with_mpi)
    # The macros by which the shared library calls through the table.
    set(private_list ${PROJECT_SOURCE_DIR}/src/private/private.def)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${private_list})
    file(STRINGS ${private_list} private_names REGEX "^MU_PRIVATE")
    list(TRANSFORM private_names REPLACE "^MU_PRIVATE.(mu_[a-z0-9_]+).$"
        "#define \\1 mu_libmuonium->\\1\n")
    list(JOIN private_names "" private_macros)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/private/private_names.h CONTENT "${private_macros}")

    add_library(muonium-mpi-static STATIC ${mpi_sources})
    add_library(muonium-mpi-shared SHARED ${mpi_sources})
    target_compile_definitions(muonium-mpi-shared PRIVATE MUONIUM_MPI_SHARED)
    target_include_directories(muonium-mpi-shared PRIVATE ${PROJECT_BINARY_DIR}/private)
    target_link_libraries(muonium-mpi-static PUBLIC muonium-static MPI::MPI_C)
    target_link_libraries(muonium-mpi-shared PUBLIC muonium-shared MPI::MPI_C PRIVATE -lm)
    get_target_property(soversion muonium-shared SOVERSION)
    set_target_properties(muonium-mpi-static PROPERTIES EXPORT_NAME mpi_static)
    set_target_properties(muonium-mpi-shared PROPERTIES
        EXPORT_NAME mpi
        VERSION ${PROJECT_VERSION}
        SOVERSION ${soversion})
    foreach(library muonium-mpi-static muonium-mpi-shared)
        set_target_properties(${library} PROPERTIES
            OUTPUT_NAME muonium_mpi
            LINKER_LANGUAGE C
            POSITION_INDEPENDENT_CODE ON
            C_VISIBILITY_PRESET hidden)
        target_include_directories(${library} PRIVATE include src)
        target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:muonium-flags>)
    endforeach()
    add_library(muonium::mpi ALIAS muonium-mpi-shared)
    add_library(muonium::mpi_static ALIAS muonium-mpi-static)
endif()

# The same library and a program against one particular MPI, which its compiler wrapper
# describes: the tests use two of them side by side, and FindMPI knows only one.
function(muonium_mpi_program name wrapper)
    execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE shown
        OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(shown UNIX_COMMAND "${shown}")
    set(include_flags ${shown})
    set(link_flags ${shown})
    list(FILTER include_flags INCLUDE REGEX "^-I")
    list(TRANSFORM include_flags REPLACE "^-I" "")
    list(FILTER link_flags INCLUDE REGEX "^(-L|-l|-pthread)")
    add_executable(${name} ${mpi_sources} ${ARGN})
    target_include_directories(${name} PRIVATE include src)
    target_include_directories(${name} SYSTEM PRIVATE ${include_flags})
    target_link_libraries(${name} PRIVATE muonium-flags muonium-static ${link_flags} -lm)
endfunction()
