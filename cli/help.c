/*
 * help.c: --help, made from the tables.
 */
#include <string.h>

#include "command.h"

enum { WIDTH = 80, HELP_COLUMN = 26 };

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

static void print_option(FILE *out, const option *entry)
{
    char left[128], right[1024];
    snprintf(left, sizeof left, "  %c%c%s--%s%s%s", entry->letter != 0 ? '-' : ' ',
             entry->letter != 0 ? entry->letter : ' ', entry->letter != 0 ? ", " : "  ",
             entry->name, entry->placeholder != NULL ? " " : "",
             entry->placeholder != NULL ? entry->placeholder : "");
    snprintf(right, sizeof right, "%s", entry->help);
    if (entry->type == OPTION_INTEGER) {
        char range[64];
        snprintf(range, sizeof range, ", %d to %d", entry->least, entry->most);
        append(right, sizeof right, range);
    }
    if (entry->type == OPTION_CHOICE) {
        append(right, sizeof right, ": ");
        const char *name;
        for (int i = 0; (name = option_choice(entry, i)) != NULL; i++) {
            append(right, sizeof right, i > 0 ? ", " : "");
            append(right, sizeof right, name);
        }
    }
    if (entry->fallback != NULL) {
        append(right, sizeof right, " (default ");
        append(right, sizeof right, entry->fallback);
        append(right, sizeof right, ")");
    }
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
    static const option help = {
        .name = "help", .letter = 'h', .type = OPTION_FLAG, .help = "print this text"};
    fprintf(out, "muonium %s: %s\n\nUsage: muonium %s [options]%s%s\n\n", self->name, self->summary,
            self->name, self->operands != NULL ? " " : "",
            self->operands != NULL ? self->operands : "");
    print_wrapped(out, self->description, 0, 0);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < self->option_count; i++) {
        print_option(out, &self->options[i]);
    }
    print_option(out, &help);
    fputs("\nExample:\n", out);
    for (const char *line = self->example; *line != 0;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

void help_overview(FILE *out, const command *const *commands)
{
    fputs("muonium: the Muon step for weight matrices, on CPUs\n\n"
          "Usage: muonium COMMAND [options]\n\nCommands:\n",
          out);
    for (; *commands != NULL; commands++) {
        fprintf(out, "  %-16s%s\n", (*commands)->name, (*commands)->summary);
    }
    fputs("\n'muonium COMMAND --help' tells all about one command, with an example.\n"
          "'muonium --version' prints the version.\n"
          "Exit codes: 0 done, 1 failed, 2 wrong command line.\n",
          out);
}
