/*
 * environment.h: the environment variables that the library and the command heed.
 */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

typedef struct environment_variable {
    const char *name, *meaning;
} environment_variable;

enum { ENVIRONMENT_VARIABLES = 2 };

extern const environment_variable environment_variables[ENVIRONMENT_VARIABLES];

#endif
