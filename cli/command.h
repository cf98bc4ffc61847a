/*
 * command.h: what a subcommand is, and how to add one.
 *
 * A subcommand is one constant of type `command` in a file of its own, and one
 * line in the list in commands.c. Help, manual pages and completion follow. The
 * smallest:
 *
 *     #include "command.h"
 *
 *     enum { JSON };
 *     static const option options[] = {
 *         [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
 *     };
 *
 *     static int run(const command *self, const arguments *given)
 *     {
 *         printf("%s\n", given->value[JSON].given ? "{}" : "nothing");
 *         return EXIT_OK;
 *     }
 *
 *     const command command_bench = {
 *         .name = "bench",
 *         .summary = "measure this machine",
 *         .description = "What it does, in a paragraph or two.",
 *         .example = "muonium bench --json",
 *         .options = options,
 *         .option_count = sizeof options / sizeof options[0],
 *         .run = run,
 *     };
 *
 * A file outside cli/ does the same with cli/ on its include path, as the
 * benchmark does.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdio.h>

#include "message.h"
#include "options.h"

typedef struct command command;

struct command {
    const char *name;
    const char *summary;     /* one line, no capital, no full stop */
    const char *description; /* paragraphs, separated by an empty line */
    const char *example;     /* lines as typed in a shell */
    const option *options;   /* without --help, which every command has */
    size_t option_count;     /* or room for as many: see options_count */
    void (*prepare)(void);   /* completes the table of options; NULL: it is complete */
    const char *operands;    /* as in the usage line: "IN.npy OUT.npy"; NULL for none */
    size_t least_operands, most_operands;
    const char *(*operand_choice)(int index); /* names that an operand may be, NULL past the
                                                 last; NULL: operands are files */

    /* Prints results on stdout and messages through message.h; returns the exit
     * code. Errors in writing stdout are noticed by the caller. */
    int (*run)(const command *self, const arguments *given);
};

extern const command command_info;
extern const command command_coeffs;
extern const command command_orthogonalize;
extern const command command_route;
extern const command command_step;
extern const command command_inspect;
extern const command command_bench;
extern const command command_mpi_plan;
extern const command command_demo;
extern const command command_completion;
extern const command command_manual;

/* ---- commands.c ---- */

/* Complete the tables of all commands, before anything else. */
void commands_prepare(void);

extern const command *const commands[]; /* all of them, NULL after the last */

/* The names by index, NULL past the last; and the command of a name, or NULL. */
const char *command_name(int index);
const command *command_find(const char *name);

/* ---- help.c ---- */

extern const char *const help_title; /* what muonium is, in one line */
extern const option option_help;     /* --help, which every command has */

/* What --help says of an option: its sentence, range, choices and default. */
void help_sentence(const option *entry, char *text, size_t size);

/* Usage, description, options and example of one command. */
void help_command(FILE *out, const command *self);

/* The list of commands. */
void help_overview(FILE *out);

#endif
