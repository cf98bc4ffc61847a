/*
 * build.h: how this command was built.
 */
#ifndef CLI_BUILD_H
#define CLI_BUILD_H

extern const char *const build_compiler;     /* "gcc 12.2.0" */
extern const char *const build_architecture; /* "x86_64" */
extern const char *const build_flags;        /* NULL if the build does not tell */

#endif
