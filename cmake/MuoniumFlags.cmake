# The compiler flags of every file, as the target muonium-flags, and those that
# a file gets by its name.

add_library(muonium-flags INTERFACE)

# Contraction stays off because a fused multiply-add that one compiler or
# instruction set makes and another does not would change results; kernels ask
# for it explicitly. errno from sqrt is never read, nor are the flags of
# floating-point exceptions, which are masked; to keep them would block
# vectorising. Neither option changes a result.
target_compile_options(muonium-flags INTERFACE
    -std=c11 -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    $<$<BOOL:${MUONIUM_WERROR}>:-Werror>)
target_compile_definitions(muonium-flags INTERFACE _GNU_SOURCE)

if(MUONIUM_SANITIZE)
    set(sanitize_flags -fsanitize=${MUONIUM_SANITIZE} -fno-sanitize-recover=all)
    target_compile_options(muonium-flags INTERFACE ${sanitize_flags} -g -fno-omit-frame-pointer)
    add_link_options(${sanitize_flags})
endif()
if(MUONIUM_COVERAGE)
    target_compile_options(muonium-flags INTERFACE --coverage -O0 -g)
    add_link_options(--coverage)
endif()

set(is_x86_64 FALSE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(is_x86_64 TRUE)
    # gcc has it since 10, clang since 9; f32 products stand in for it, with the same results.
    include(CheckCCompilerFlag)
    check_c_compiler_flag(-mavx512bf16 MUONIUM_COMPILER_HAS_AVX512_BF16)
    if(MUONIUM_COMPILER_HAS_AVX512_BF16)
        target_compile_definitions(muonium-flags INTERFACE MU_HAVE_AVX512_BF16)
    endif()
endif()

# Files named *_avx2.c, *_avx512.c and *_avx512_bf16.c are compiled for that instruction set; the
# dispatcher calls them only where the processor has it. On other architectures, or for a compiler
# that does not have it, the same files guard themselves and compile to nothing.
function(muonium_instruction_set_flags)
    if(NOT is_x86_64)
        return()
    endif()
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512)
    set(avx512_bf16 ${avx512})
    if(MUONIUM_COMPILER_HAS_AVX512_BF16)
        list(APPEND avx512_bf16 -mavx512bf16)
    endif()
    foreach(source ${ARGN})
        if(source MATCHES "_(avx2|avx512|avx512_bf16)\\.c$")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${CMAKE_MATCH_1}}")
        endif()
    endforeach()
endfunction()
