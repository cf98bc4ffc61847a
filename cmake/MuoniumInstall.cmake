# Manual pages and completions (MUONIUM_MANUAL), and what `make install` places
# (MUONIUM_INSTALL): headers, both libraries, the command with its manual pages and
# completions, and the two descriptions by which other builds find the libraries (pkg-config
# and CMake).

# ---- manual pages and completions ----

set(manual_dir ${PROJECT_BINARY_DIR}/man)
set(completion_dir ${PROJECT_BINARY_DIR}/completion)
if(MUONIUM_MANUAL)
    file(MAKE_DIRECTORY ${manual_dir}/man1 ${manual_dir}/man3 ${completion_dir})
    add_custom_target(muonium-manual ALL)
endif()

# A public header of the pkg-config package `package`: it is its own manual. The other argument
# is the table of its options.
function(muonium_manual_of header package)
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE defaults)
    get_filename_component(name ${header} NAME_WE)
    set(script ${PROJECT_SOURCE_DIR}/tools/make-manual-3)
    set(page ${manual_dir}/man3/${name}.3)
    add_custom_command(OUTPUT ${page}
        COMMAND ${script} ${PROJECT_SOURCE_DIR}/${header} ${package} ${PROJECT_VERSION}
            ${manual_dir}/man3 ${defaults}
        DEPENDS ${PROJECT_SOURCE_DIR}/${header} ${script} ${defaults}
        COMMENT "Making the manual page ${name}(3)" VERBATIM)
    add_custom_target(muonium-manual-${name} DEPENDS ${page})
    add_dependencies(muonium-manual muonium-manual-${name})
endfunction()

# The command makes its manual pages and completions from its own table of options. A
# sanitized one need not run outside of its tests, nor one for another machine here.
set(command_manual OFF)
if(MUONIUM_MANUAL)
    muonium_manual_of(include/muonium.h muonium
        src/options/options.def)
    if(muonium_with_mpi)
        muonium_manual_of(include/muonium_mpi.h muonium_mpi)
        muonium_manual_of(include/muonium_mpi_plan.h muonium_mpi)
    endif()
    if(TARGET muonium-command AND NOT MUONIUM_SANITIZE AND
        (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
        set(command_manual ON)
    endif()
endif()
if(command_manual)
    set(completions)
    foreach(shell bash zsh fish)
        list(APPEND completions
            COMMAND muonium-command completion ${shell} > ${completion_dir}/muonium.${shell})
    endforeach()
    add_custom_command(OUTPUT ${manual_dir}/man1/muonium.1
        COMMAND muonium-command manual --output ${manual_dir}/man1
        ${completions}
        DEPENDS muonium-command
        COMMENT "Making manual pages and completions" VERBATIM)
    add_custom_target(muonium-manual-command DEPENDS ${manual_dir}/man1/muonium.1)
    add_dependencies(muonium-manual muonium-manual-command)
endif()

# ---- installing ----

if(NOT MUONIUM_INSTALL)
    return()
endif()
include(CMakePackageConfigHelpers)
set(MUONIUM_ZSH_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING
    "Where zsh looks for completions (Debian's packages: share/zsh/vendor-completions)")

install(FILES include/muonium.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS muonium-shared muonium-static
    EXPORT muonium-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET muonium-command)
    install(TARGETS muonium-command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(MUONIUM_MANUAL)
    install(DIRECTORY ${manual_dir}/ DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
if(command_manual)
    install(FILES ${completion_dir}/muonium.bash RENAME muonium
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${completion_dir}/muonium.zsh RENAME _muonium
        DESTINATION ${MUONIUM_ZSH_COMPLETIONS})
    install(FILES ${completion_dir}/muonium.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# pkg-config: paths relative to the file itself, so that the tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkgconfig
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
foreach(kind INCLUDEDIR LIBDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}}")
        set(pkgconfig_${kind} "${CMAKE_INSTALL_${kind}}")
    else()
        set(pkgconfig_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
    endif()
endforeach()
list(JOIN muonium_private_libraries " " pkgconfig_private)
configure_file(cmake/muonium.pc.in muonium.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/muonium.pc DESTINATION ${pkgconfig_dir})

# CMake: find_package(muonium) gives muonium::muonium and muonium::static, with the component
# mpi also muonium::mpi and muonium::mpi_static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muonium)
configure_package_config_file(cmake/muonium-config.cmake.in muonium-config.cmake
    INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(compatibility SameMinorVersion)
else()
    set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(muonium-config-version.cmake COMPATIBILITY ${compatibility})
install(FILES
    ${PROJECT_BINARY_DIR}/muonium-config.cmake
    ${PROJECT_BINARY_DIR}/muonium-config-version.cmake
    DESTINATION ${package_dir})
install(EXPORT muonium-targets NAMESPACE muonium:: DESTINATION ${package_dir})

if(muonium_with_mpi)
    install(FILES include/muonium_mpi.h include/muonium_mpi_plan.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(TARGETS muonium-mpi-shared muonium-mpi-static
        EXPORT muonium-mpi-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    configure_file(cmake/muonium_mpi.pc.in muonium_mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/muonium_mpi.pc DESTINATION ${pkgconfig_dir})
    install(EXPORT muonium-mpi-targets NAMESPACE muonium:: DESTINATION ${package_dir})
endif()

# pip: the library inside the package, and the command among the environment's programs. A wheel
# holds no symbolic links.
install(FILES $<TARGET_FILE:muonium-shared> DESTINATION muonium
    RENAME ${CMAKE_SHARED_LIBRARY_PREFIX}muonium${CMAKE_SHARED_LIBRARY_SUFFIX}
    COMPONENT python EXCLUDE_FROM_ALL)
if(TARGET muonium-command)
    set(python_scripts bin)
    if(SKBUILD_SCRIPTS_DIR)
        set(python_scripts ${SKBUILD_SCRIPTS_DIR})
    endif()
    install(PROGRAMS $<TARGET_FILE:muonium-command> DESTINATION ${python_scripts}
        COMPONENT python EXCLUDE_FROM_ALL)
endif()
