/*
 * commands.c: the list of subcommands, in the order of --help.
 */
#include <string.h>

#include "command.h"

const command *const commands[] = {
    &command_demo,     &command_info,       &command_coeffs,  &command_orthogonalize,
    &command_route,    &command_step,       &command_inspect, &command_bench,
    &command_mpi_plan, &command_completion, &command_manual,  NULL,
};

const char *command_name(int index)
{
    return commands[index] != NULL ? commands[index]->name : NULL;
}

const command *command_find(const char *name)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

void commands_prepare(void)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (commands[i]->prepare != NULL) {
            commands[i]->prepare();
        }
    }
}
