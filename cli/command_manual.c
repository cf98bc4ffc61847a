/*
 * command_manual.c: muonium manual, the manual pages of section 1, made from the tables
 * that parse the command line: muonium.1, and muonium-NAME.1 for every command.
 *
 * The language is that of man(7), which groff and mandoc both read.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "environment.h"
#include "file.h"

enum { OUTPUT };

static const option options[] = {
    [OUTPUT] = {.name = "output",
                .letter = 'o',
                .type = OPTION_FILE,
                .placeholder = "DIRECTORY",
                .help = "write all pages to files in DIRECTORY, which must exist"},
};

/* ---- the language of manual pages ---- */

/* Text as it is: a hyphen that is typed must not become a typographic one, and a line
 * must not begin as a request does. `at_start`: whether a line begins here. */
static void put_verbatim(FILE *out, const char *text, size_t length, bool at_start)
{
    static const struct {
        char plain;
        const char *escaped;
    } special[] = {{'-', "\\-"},   {'\\', "\\e"},  {'\'', "\\(aq"},
                   {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    if (at_start && length > 0 && (text[0] == '.' || text[0] == '\'')) {
        fputs("\\&", out);
    }
    for (size_t i = 0; i < length; i++) {
        const char *escaped = NULL;
        for (size_t s = 0; s < sizeof special / sizeof special[0]; s++) {
            escaped = text[i] == special[s].plain ? special[s].escaped : escaped;
        }
        if (escaped != NULL) {
            fputs(escaped, out);
        } else {
            fputc(text[i], out);
        }
    }
}

/* Prose: words, a few to a line; an empty line in the text starts a paragraph. Hyphens
 * are typographic but for those of options and exponents. */
static void put_prose(FILE *out, const char *text)
{
    enum { LINE = 76 };
    size_t column = 0;
    while (*text != 0) {
        const size_t breaks = strspn(text, " \n");
        if (breaks >= 2 && text[0] == '\n' && text[1] == '\n') {
            fputs("\n.PP\n", out);
            column = 0;
        }
        text += breaks;
        const size_t length = strcspn(text, " \n");
        if (column > 0 && column + length > LINE) {
            fputc('\n', out);
            column = 0;
        } else if (column > 0) {
            fputc(' ', out);
        }
        if (memchr(text, '^', length) != NULL || memchr(text, '\'', length) != NULL ||
            memchr(text, '\\', length) != NULL || text[0] == '-' || text[0] == '.') {
            put_verbatim(out, text, length, column == 0);
        } else {
            fwrite(text, 1, length, out);
        }
        column += length + 1;
        text += length;
    }
    fputc('\n', out);
}

static void put_head(FILE *out, const char *name, const char *summary)
{
    fputs(".\\\" Made by `muonium manual` from its table of options.\n.nr HY 0\n.TH ", out);
    for (const char *c = name; *c != 0; c++) {
        fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, out);
    }
    fprintf(out, " 1 \"\" \"Muonium %s\" \"Muonium Manual\"\n.ad l\n.SH NAME\n",
            MUONIUM_VERSION_STRING);
    put_verbatim(out, name, strlen(name), true);
    fprintf(out, " \\- %s\n", summary);
}

/* Commands as they are typed; one that 80 columns cannot hold, of which 11 are margin, goes on
 * after a backslash. */
static void put_example(FILE *out, const char *text)
{
    enum { LINE = 69, INDENT = 4 };
    fputs(".RS 4\n.EX\n", out);
    while (*text != 0) {
        size_t length = strcspn(text, "\n"), room = LINE;
        while (length > room) {
            size_t cut = room - 2; /* for " \" */
            while (cut > 0 && text[cut] != ' ') {
                cut--;
            }
            if (cut == 0) {
                break;
            }
            put_verbatim(out, text, cut, true);
            fprintf(out, " \\e\n%*s", INDENT, "");
            text += cut + 1;
            length -= cut + 1;
            room = LINE - INDENT;
        }
        put_verbatim(out, text, length, room == LINE);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
    fputs(".EE\n.RE\n", out);
}

static void put_option(FILE *out, const option *entry)
{
    char sentence[1024];
    fputs(".TP\n", out);
    if (entry->letter != 0) {
        fprintf(out, "\\fB\\-%c\\fR, ", entry->letter);
    }
    fputs("\\fB\\-\\-", out);
    put_verbatim(out, entry->name, strlen(entry->name), false);
    fputs("\\fR", out);
    if (entry->placeholder != NULL) {
        fprintf(out, " \\fI%s\\fR", entry->placeholder);
    }
    fputc('\n', out);
    help_sentence(entry, sentence, sizeof sentence);
    put_prose(out, sentence);
}

/* ---- what the pages share ---- */

static void put_status_and_environment(FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    put_prose(out, "0 on success, 1 if something failed, 2 if the command line is wrong. Messages "
                   "go to standard error.");
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < ENVIRONMENT_VARIABLES; i++) {
        fprintf(out, ".TP\n.B %s\n", environment_variables[i].name);
        put_prose(out, environment_variables[i].meaning);
    }
}

/* References to the other pages, `self` (NULL: muonium.1) left out. */
static void put_see_also(FILE *out, const command *self)
{
    fputs(".SH SEE ALSO\n", out);
    if (self != NULL) {
        fputs(".BR muonium (1),\n", out);
    }
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (commands[i] != self) {
            fprintf(out, ".BR muonium\\-%s (1),\n", commands[i]->name);
        }
    }
    fputs(".BR muonium (3)\n", out);
}

/* ---- the pages ---- */

static void put_overview(FILE *out)
{
    put_head(out, "muonium", help_title);
    fputs(".SH SYNOPSIS\n.B muonium\n.I command\n.RI [ options ]\n.RI [ operands ]\n"
          ".PP\n.B muonium\n.BR \\-\\-help \" | \" \\-\\-version\n"
          ".SH DESCRIPTION\n",
          out);
    put_prose(out,
              "Muon is an optimizer for neural networks. Before each step it orthogonalises the "
              "momentum of each weight matrix. AdamW updates all other parameters. Muonium is a C "
              "library that does both on CPUs. This command applies it to files: NumPy arrays "
              "(.npy) and safetensors files.\n\n"
              "Each command has a page of its own, and --help with an example.");
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, ".TP\n.BR muonium\\-%s (1)\n", commands[i]->name);
        put_prose(out, commands[i]->summary);
    }
    fputs(".TP\n.B help\nthe list of commands, or with the name of one, its help\n"
          ".SH OPTIONS\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint the list of commands\n"
          ".TP\n\\fB\\-V\\fR, \\fB\\-\\-version\\fR\nprint the version\n",
          out);
    put_status_and_environment(out);
    fputs(".SH EXAMPLES\nCompare Muon with AdamW, in two minutes:\n", out);
    put_example(out, command_demo.example);
    fputs(".PP\nShow the route of every tensor of a model:\n", out);
    put_example(out, command_route.example);
    put_see_also(out, NULL);
}

static void put_page(FILE *out, const command *self)
{
    char name[64];
    snprintf(name, sizeof name, "muonium-%s", self->name);
    put_head(out, name, self->summary);
    fprintf(out, ".SH SYNOPSIS\n.B muonium %s\n.RI [ options ]\n", self->name);
    if (self->operands != NULL) {
        fprintf(out, ".I %s\n", self->operands);
    }
    fputs(".SH DESCRIPTION\n", out);
    put_prose(out, self->description);
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < options_count(self->options, self->option_count); i++) {
        put_option(out, &self->options[i]);
    }
    put_option(out, &option_help);
    put_status_and_environment(out);
    fputs(".SH EXAMPLES\n", out);
    put_example(out, self->example);
    put_see_also(out, self);
}

/* The page of a command, or with NULL that of all, to a file in `directory`. */
static bool write_page(const char *directory, const command *self, problem *what)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/muonium%s%s.1", directory,
                                self != NULL ? "-" : "", self != NULL ? self->name : "");
    if (length < 0 || (size_t)length >= sizeof path) {
        return problem_set(what, "'%.100s...' is too long for a path", directory);
    }
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory == NULL) {
        return problem_set(what, "out of memory for '%s'", path);
    }
    if (self != NULL) {
        put_page(memory, self);
    } else {
        put_overview(memory);
    }
    const bool complete = fclose(memory) == 0;
    const bool written = complete ? file_replace(path, &(file_piece){text, size}, 1, what)
                                  : problem_set(what, "out of memory for '%s'", path);
    free(text);
    return written;
}

static int run(const command *self, const arguments *given)
{
    const char *directory = given->value[OUTPUT].text;
    const command *about = given->operands > 0 ? command_find(given->operand[0]) : NULL;
    if (given->operands > 0 && about == NULL) {
        return message_usage(self->name, "there is no command '%s'", given->operand[0]);
    }
    if (directory == NULL) {
        if (about != NULL) {
            put_page(stdout, about);
        } else {
            put_overview(stdout);
        }
        return EXIT_OK;
    }
    if (about != NULL) {
        return message_usage(self->name, "--output writes all pages: leave out '%s'", about->name);
    }
    problem what;
    bool written = write_page(directory, NULL, &what);
    for (size_t i = 0; commands[i] != NULL && written; i++) {
        written = write_page(directory, commands[i], &what);
    }
    return written ? EXIT_OK : message_failed(self->name, "%s", what.text);
}

const command command_manual = {
    .name = "manual",
    .summary = "print manual pages",
    .description =
        "Prints the manual page of COMMAND, in the language of man(7). Without COMMAND, prints the "
        "page of muonium itself. An installed Muonium comes with these pages.",
    .example = "muonium manual demo | man -l -\nmuonium manual --output /usr/local/share/man/man1",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .operands = "[COMMAND]",
    .most_operands = 1,
    .operand_choice = command_name,
    .run = run,
};
