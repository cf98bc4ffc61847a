# Cross compilation for 64-bit Arm with Debian's gcc-aarch64-linux-gnu; test programs are run by
# qemu-user, as the CPU that QEMU_CPU names (docs/kernels.md, 64-bit Arm):
#
#     cmake -S . -B build-arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
#
# -DCMAKE_C_COMPILER=clang uses clang with the same C library.
#
# -DMUONIUM_ARM64_LIBRARIES=DIR: what tools/arm64-packages has printed: the libraries of the tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(NOT CMAKE_C_COMPILER)
    set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu) # read by clang alone

set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /nonexistent) # none of the building machine's libraries
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MUONIUM_ARM64_LIBRARIES)
if(MUONIUM_ARM64_LIBRARIES)
    list(APPEND CMAKE_FIND_ROOT_PATH ${MUONIUM_ARM64_LIBRARIES})
    set(muonium_arm64_directory ${MUONIUM_ARM64_LIBRARIES}/usr/lib/aarch64-linux-gnu)
    set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
    set(ENV{PKG_CONFIG_LIBDIR} ${muonium_arm64_directory}/pkgconfig)
    set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MUONIUM_ARM64_LIBRARIES})
    set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link=${muonium_arm64_directory})
    list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -E LD_LIBRARY_PATH=${muonium_arm64_directory})
endif()
