# The examples: small programs that see the public header alone, and the GPT of
# the demo: muonium-gpt is its model, muonium-demo makes a subcommand of it.

file(GLOB example_programs CONFIGURE_DEPENDS examples/*.c)
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

add_library(muonium-gpt OBJECT ${gpt_model_sources})
add_library(muonium-demo OBJECT ${gpt_demo_sources})
foreach(part muonium-gpt muonium-demo)
    target_include_directories(${part} PRIVATE include src cli)
    target_link_libraries(${part} PRIVATE muonium-flags)
endforeach()
set_source_files_properties(examples/gpt/corpus.c PROPERTIES
    COMPILE_DEFINITIONS "GPT_TEXT_PATH=\"${gpt_text}\""
    OBJECT_DEPENDS ${gpt_text})
