# What `make install` places: headers, both libraries, the command, and the two
# descriptions by which other builds find them (pkg-config and CMake).

include(CMakePackageConfigHelpers)

install(FILES include/muonium.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS muonium-shared muonium-static
    EXPORT muonium-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET muonium-command)
    install(TARGETS muonium-command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
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

# CMake: find_package(muonium) gives muonium::muonium and muonium::static.
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

# pip: the library alone, inside the package. A wheel holds no symbolic links.
install(FILES $<TARGET_FILE:muonium-shared> DESTINATION muonium
    RENAME ${CMAKE_SHARED_LIBRARY_PREFIX}muonium${CMAKE_SHARED_LIBRARY_SUFFIX}
    COMPONENT python EXCLUDE_FROM_ALL)
