# The examples: small programs that see the public header alone, and the GPT of
# the demo: muonium-gpt is its model, muonium-demo makes a subcommand of it.

file(GLOB example_programs CONFIGURE_DEPENDS examples/*.c)
if(NOT MUONIUM_EXAMPLES AND NOT MUONIUM_TESTS)
    set(example_programs)
endif()
foreach(source ${example_programs})
    get_filename_component(name ${source} NAME_WE)
    add_executable(example-${name} ${source})
    set_target_properties(example-${name} PROPERTIES
        OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example-${name} PRIVATE muonium-flags muonium-static -lm)
endforeach()

set(gpt_text ${PROJECT_SOURCE_DIR}/examples/gpt/data/austen.txt)
set(gpt_model_sources
    examples/gpt/layers.c
    examples/gpt/model.c
    examples/gpt/product.c)
file(GLOB gpt_demo_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} examples/gpt/*.c)
list(REMOVE_ITEM gpt_demo_sources ${gpt_model_sources})

add_library(muonium-gpt OBJECT EXCLUDE_FROM_ALL ${gpt_model_sources})
add_library(muonium-demo OBJECT EXCLUDE_FROM_ALL ${gpt_demo_sources})
foreach(part muonium-gpt muonium-demo)
    target_include_directories(${part} PRIVATE include src cli)
    target_link_libraries(${part} PRIVATE muonium-flags)
endforeach()
set_source_files_properties(examples/gpt/corpus.c PROPERTIES
    COMPILE_DEFINITIONS "GPT_TEXT_PATH=\"${gpt_text}\""
    OBJECT_DEPENDS ${gpt_text})

if(muonium_with_mpi AND (MUONIUM_EXAMPLES OR MUONIUM_TESTS))
    add_executable(example-mpi-gpt examples/mpi/gpt.c examples/gpt/corpus.c cli/message.c cli/text.c
        $<TARGET_OBJECTS:muonium-gpt>)
    set_target_properties(example-mpi-gpt PROPERTIES
        OUTPUT_NAME mpi_gpt
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_include_directories(example-mpi-gpt PRIVATE src cli)
    target_link_libraries(example-mpi-gpt PRIVATE muonium-flags muonium-mpi-static -lm)
endif()
