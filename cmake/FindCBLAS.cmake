# Find a BLAS with the C interface: cblas.h and the libraries that provide
# cblas_sgemm. Sets CBLAS_FOUND, CBLAS_INCLUDE_DIR and CBLAS_LIBRARIES. The
# choice of vendor is that of FindBLAS (BLA_VENDOR).

include(CheckCSourceCompiles)
include(CMakePushCheckState)
include(FindPackageHandleStandardArgs)

find_package(BLAS QUIET)
find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas cblas blis)
find_library(CBLAS_EXTRA_LIBRARY cblas)
mark_as_advanced(CBLAS_INCLUDE_DIR CBLAS_EXTRA_LIBRARY)

# Some BLAS libraries contain the C interface, others leave it to libcblas.
if(BLAS_FOUND AND CBLAS_INCLUDE_DIR)
    set(program "#include <cblas.h>
        int main(void)
        {
            float x = 1;
            return (int)cblas_sdot(1, &x, 1, &x, 1);
        }")
    cmake_push_check_state(RESET)
    set(CMAKE_REQUIRED_INCLUDES ${CBLAS_INCLUDE_DIR})
    set(CMAKE_REQUIRED_LIBRARIES ${BLAS_LIBRARIES})
    check_c_source_compiles("${program}" CBLAS_WITHIN_BLAS)
    if(CBLAS_WITHIN_BLAS)
        set(CBLAS_LIBRARIES ${BLAS_LIBRARIES})
    elseif(CBLAS_EXTRA_LIBRARY)
        set(CMAKE_REQUIRED_LIBRARIES ${CBLAS_EXTRA_LIBRARY} ${BLAS_LIBRARIES})
        check_c_source_compiles("${program}" CBLAS_BESIDE_BLAS)
        if(CBLAS_BESIDE_BLAS)
            set(CBLAS_LIBRARIES ${CBLAS_EXTRA_LIBRARY} ${BLAS_LIBRARIES})
        endif()
    endif()
    cmake_pop_check_state()
endif()

find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARIES CBLAS_INCLUDE_DIR)
