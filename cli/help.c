/*
 * help.c: --help, made from the tables.
 */
#include <string.h>

#include "command.h"

enum { WIDTH = 80, HELP_COLUMN = 26 };

const char *const help_title = "the Muon optimizer for weight matrices, on CPUs";

const option option_help = {
    .name = "help", .letter = 'h', .type = OPTION_FLAG, .help = "print this text"};

/* Print words up to column WIDTH, continuing at `indent`; an empty line in the
 * text starts a new paragraph. `column` is where the output stands; ends with a
 * newline. */
static void print_wrapped(FILE *out, const char *text, size_t indent, size_t column)
{
    bool line_is_empty = true;
    while (*text != 0) {
        size_t breaks = strspn(text, " \n");
        bool paragraph = breaks >= 2 && text[0] == '\n' && text[1] == '\n';
        text += breaks;
        size_t length = strcspn(text, " \n");
        if (length == 0) {
            break;
        }
        if (!line_is_empty && (paragraph || column + 1 + length > WIDTH)) {
            fprintf(out, paragraph ? "\n\n%*s" : "\n%*s", (int)indent, "");
            column = indent;
            line_is_empty = true;
        }
        fprintf(out, "%s%.*s", line_is_empty ? "" : " ", (int)length, text);
        column += length + !line_is_empty;
        line_is_empty = false;
        text += length;
    }
    fputc('\n', out);
}

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

void help_sentence(const option *entry, char *text, size_t size)
{
    char range[64] = "";
    snprintf(text, size, "%s", entry->help);
    if (entry->type == OPTION_CHOICE) {
        append(text, size, ": ");
        const char *name;
        for (int i = 0; (name = option_choice(entry, i)) != NULL; i++) {
            append(text, size, i > 0 ? ", " : "");
            append(text, size, name);
        }
    }
    if (entry->type == OPTION_INTEGER) {
        snprintf(range, sizeof range, "%d to %d%s", entry->least, entry->most,
                 entry->fallback != NULL ? "; " : "");
    }
    if (range[0] != 0 || entry->fallback != NULL) {
        append(text, size, " (");
        append(text, size, range);
        append(text, size, entry->fallback != NULL ? "default " : "");
        append(text, size, entry->fallback != NULL ? entry->fallback : "");
        append(text, size, ")");
    }
}

static void print_option(FILE *out, const option *entry)
{
    char left[128], right[1024];
    snprintf(left, sizeof left, "  %c%c%s--%s%s%s", entry->letter != 0 ? '-' : ' ',
             entry->letter != 0 ? entry->letter : ' ', entry->letter != 0 ? ", " : "  ",
             entry->name, entry->placeholder != NULL ? " " : "",
             entry->placeholder != NULL ? entry->placeholder : "");
    help_sentence(entry, right, sizeof right);
    size_t column = strlen(left);
    fputs(left, out);
    if (column + 2 > HELP_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", (int)(HELP_COLUMN - column), "");
    print_wrapped(out, right, HELP_COLUMN, HELP_COLUMN);
}

void help_command(FILE *out, const command *self)
{
    fprintf(out, "muonium %s: %s\n\nUsage: muonium %s [options]%s%s\n\n", self->name, self->summary,
            self->name, self->operands != NULL ? " " : "",
            self->operands != NULL ? self->operands : "");
    print_wrapped(out, self->description, 0, 0);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < options_count(self->options, self->option_count); i++) {
        print_option(out, &self->options[i]);
    }
    print_option(out, &option_help);
    fputs("\nExample:\n", out);
    for (const char *line = self->example; *line != 0;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

void help_overview(FILE *out)
{
    fprintf(out, "muonium: %s\n\nUsage: muonium COMMAND [options]\n\nCommands:\n", help_title);
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "  %-16s%s\n", commands[i]->name, commands[i]->summary);
    }
    fputs("\n'muonium COMMAND --help' explains one command, with an example.\n"
          "'muonium --version' prints the version and how it was built.\n"
          "Exit codes: 0 done, 1 failed, 2 wrong command line.\n",
          out);
}
