/*
 * build.c: see build.h.
 */
#include "build.h"

#include <stddef.h>

#if defined(__clang__)
const char *const build_compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
const char *const build_compiler = "gcc " __VERSION__;
#else
const char *const build_compiler = "unknown";
#endif

#if defined(__x86_64__)
const char *const build_architecture = "x86_64";
#elif defined(__aarch64__)
const char *const build_architecture = "aarch64";
#else
const char *const build_architecture = "other";
#endif

#ifdef MUONIUM_BUILD_FLAGS
const char *const build_flags = MUONIUM_BUILD_FLAGS;
#else
const char *const build_flags = NULL;
#endif
