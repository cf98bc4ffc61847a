# The compiler flags of every file, as the target muonium-flags. Kernels choose their instruction
# set in the source (src/vector/kernels/target.h).

add_library(muonium-flags INTERFACE)

# Contraction stays off because a fused multiply-add that one compiler or
# instruction set makes and another does not would change results; kernels ask
# for it explicitly. errno from sqrt is never read, nor are the flags of
# floating-point exceptions, which are masked; to keep them would block
# vectorising. Neither option changes a result.
target_compile_options(muonium-flags INTERFACE
    -std=c11 -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    $<$<C_COMPILER_ID:Clang,AppleClang>:-Wno-enum-float-conversion> # constants are enumerators
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
