/*
 * command_completion.c: muonium completion, what a shell needs to complete command lines,
 * made from the tables that parse them.
 *
 * Each script names every command, every option, the choices of options that have some,
 * and where files are expected.
 */
#include <string.h>

#include "command.h"
#include "text.h"

/* How the value of an option is completed. */
typedef enum completed_by { BY_NOTHING, BY_NAMES, BY_FILES } completed_by;

static completed_by value_completed_by(const option *entry)
{
    return entry->type == OPTION_FILE        ? BY_FILES
           : option_choice(entry, 0) != NULL ? BY_NAMES
                                             : BY_NOTHING;
}

static completed_by operands_completed_by(const command *self)
{
    return self->operands == NULL ? BY_NOTHING : self->operand_choice != NULL ? BY_NAMES : BY_FILES;
}

/* Visit the options of a command, --help last: the table itself leaves it out. */
static const option *option_at(const command *self, size_t index)
{
    size_t count = options_count(self->options, self->option_count);
    return index < count ? &self->options[index] : index == count ? &option_help : NULL;
}

/* Text within single quotes of a shell, with a backslash before each of `special`. */
static void put_quoted(FILE *out, const char *text, const char *special)
{
    for (; *text != 0; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
        } else {
            fprintf(out, strchr(special, *text) != NULL ? "\\%c" : "%c", *text);
        }
    }
}

/* ---- lists of names ---- */

static const char *option_candidate(const void *context, size_t index)
{
    return option_choice(context, (int)index);
}

static const char *operand_candidate(const void *context, size_t index)
{
    const command *self = context;
    return self->operand_choice((int)index);
}

static const char *command_candidate(const void *context, size_t index)
{
    (void)context;
    return command_name((int)index);
}

/* All of them, separated by spaces. */
static void put_names(FILE *out, text_candidate *candidate, const void *context)
{
    const char *name;
    for (size_t i = 0; (name = candidate(context, i)) != NULL; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", name);
    }
}

/* ---- bash ---- */

static void put_bash_values(FILE *out, const command *self)
{
    const option *entry;
    for (size_t i = 0; (entry = option_at(self, i)) != NULL; i++) {
        if (entry->type == OPTION_FLAG) {
            continue;
        }
        fprintf(out, "    %s/--%s", self->name, entry->name);
        if (entry->letter != 0) {
            fprintf(out, " | %s/-%c", self->name, entry->letter);
        }
        fputs(") ", out);
        switch (value_completed_by(entry)) {
        case BY_NOTHING:
            fputs("return ;;\n", out);
            break;
        case BY_FILES:
            fputs("files=yes ;;\n", out);
            break;
        case BY_NAMES:
            fputs("names='", out);
            put_names(out, option_candidate, entry);
            fputs("' ;;\n", out);
            break;
        }
    }
}

static void put_bash_command(FILE *out, const command *self)
{
    const option *entry;
    fprintf(out, "    %s/-*) names='", self->name);
    for (size_t i = 0; (entry = option_at(self, i)) != NULL; i++) {
        fprintf(out, "%s--%s", i > 0 ? " " : "", entry->name);
    }
    fputs("' ;;\n", out);
    switch (operands_completed_by(self)) {
    case BY_NOTHING:
        break;
    case BY_FILES:
        fprintf(out, "    %s/*) files=yes ;;\n", self->name);
        break;
    case BY_NAMES:
        fprintf(out, "    %s/*) names='", self->name);
        put_names(out, operand_candidate, self);
        fputs("' ;;\n", out);
        break;
    }
}

static void print_bash(FILE *out)
{
    fputs("# bash completion for muonium, made by `muonium completion bash`.\n\n"
          "_muonium()\n{\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command=${COMP_WORDS[1]} names='' files=''\n"
          "    COMPREPLY=()\n"
          "    # bash cuts --name=value into three words\n"
          "    if [[ $current == = ]]; then\n        current=''\n"
          "    elif [[ $previous == = ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n    fi\n"
          "    case $command/$previous in\n",
          out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        put_bash_values(out, commands[i]);
    }
    fputs("    esac\n"
          "    if ((COMP_CWORD == 1)); then\n        names='",
          out);
    put_names(out, command_candidate, NULL);
    fputs(" help --help --version'\n"
          "    elif [[ -z $names$files ]]; then\n"
          "        case $command/$current in\n",
          out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        put_bash_command(out, commands[i]);
    }
    fputs("    help/*) names='", out);
    put_names(out, command_candidate, NULL);
    fputs("' ;;\n        esac\n    fi\n"
          "    if [[ -n $files ]]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
          "    elif [[ -n $names ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$current\")\n"
          "    fi\n}\n\n"
          "complete -F _muonium muonium\n",
          out);
}

/* ---- zsh ---- */

/* One specification of _arguments: '(-n --steps)'{-n+,--steps=}'[sentence]:N:(names)' */
static void put_zsh_option(FILE *out, const option *entry)
{
    const bool flag = entry->type == OPTION_FLAG;
    if (entry->letter != 0) {
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", entry->letter, entry->name, entry->letter,
                flag ? "" : "+", entry->name, flag ? "" : "=");
    } else {
        fprintf(out, "'--%s%s[", entry->name, flag ? "" : "=");
    }
    put_quoted(out, entry->help, "[]\\");
    fputc(']', out);
    if (!flag) {
        fputc(':', out);
        put_quoted(out, entry->placeholder, ":\\");
        fputc(':', out);
        switch (value_completed_by(entry)) {
        case BY_NOTHING:
            break;
        case BY_FILES:
            fputs("_files", out);
            break;
        case BY_NAMES:
            fputc('(', out);
            put_names(out, option_candidate, entry);
            fputc(')', out);
            break;
        }
    }
    fputc('\'', out);
}

static void put_zsh_command(FILE *out, const command *self)
{
    const option *entry;
    fprintf(out, "    %s)\n        _arguments", self->name);
    for (size_t i = 0; (entry = option_at(self, i)) != NULL; i++) {
        fputs(" \\\n            ", out);
        put_zsh_option(out, entry);
    }
    switch (operands_completed_by(self)) {
    case BY_NOTHING:
        break;
    case BY_FILES:
        fputs(" \\\n            '*:file:_files'", out);
        break;
    case BY_NAMES:
        fputs(" \\\n            '1:name:(", out);
        put_names(out, operand_candidate, self);
        fputs(")'", out);
        break;
    }
    fputs("\n        ;;\n", out);
}

static void print_zsh(FILE *out)
{
    fputs("#compdef muonium\n# zsh completion for muonium, made by `muonium completion zsh`.\n\n"
          "_muonium()\n{\n"
          "    local curcontext=$curcontext state line\n"
          "    local -a names\n"
          "    names=(\n",
          out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "        '%s:", commands[i]->name);
        put_quoted(out, commands[i]->summary, ":\\");
        fputs("'\n", out);
    }
    fputs("        'help:the list of commands, or the help of one'\n    )\n"
          "    _arguments -C \\\n"
          "        '(- *)'{-h,--help}'[print the list of commands]' \\\n"
          "        '(- *)'{-V,--version}'[print the version]' \\\n"
          "        '1:command:->command' '*::argument:->argument'\n"
          "    if [[ $state == command ]]; then\n"
          "        _describe command names\n        return\n    fi\n"
          "    case $words[1] in\n",
          out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        put_zsh_command(out, commands[i]);
    }
    fputs("    help)\n        _describe command names\n        ;;\n    esac\n}\n\n"
          "if [[ $funcstack[1] == _muonium ]]; then\n    _muonium \"$@\"\n"
          "else\n    compdef _muonium muonium\nfi\n",
          out);
}

/* ---- fish ---- */

static void put_fish_option(FILE *out, const command *self, const option *entry)
{
    fprintf(out, "complete -c muonium -n '__fish_seen_subcommand_from %s' -l %s", self->name,
            entry->name);
    if (entry->letter != 0) {
        fprintf(out, " -s %c", entry->letter);
    }
    if (entry->type != OPTION_FLAG) {
        switch (value_completed_by(entry)) {
        case BY_NOTHING:
            fputs(" -x", out);
            break;
        case BY_FILES:
            fputs(" -r -F", out);
            break;
        case BY_NAMES:
            fputs(" -x -a '", out);
            put_names(out, option_candidate, entry);
            fputc('\'', out);
            break;
        }
    }
    fputs(" -d '", out);
    put_quoted(out, entry->help, "\\");
    fputs("'\n", out);
}

static void print_fish(FILE *out)
{
    fputs("# fish completion for muonium, made by `muonium completion fish`.\n\n"
          "complete -c muonium -f\n"
          "complete -c muonium -n __fish_use_subcommand -s h -l help -d 'print the list of "
          "commands'\n"
          "complete -c muonium -n __fish_use_subcommand -s V -l version -d 'print the version'\n"
          "complete -c muonium -n __fish_use_subcommand -a help -d 'the list of commands, or the "
          "help of one'\n"
          "complete -c muonium -n '__fish_seen_subcommand_from help' -a '",
          out);
    put_names(out, command_candidate, NULL);
    fputs("'\n", out);
    for (size_t i = 0; commands[i] != NULL; i++) {
        const command *self = commands[i];
        fprintf(out, "\ncomplete -c muonium -n __fish_use_subcommand -a %s -d '", self->name);
        put_quoted(out, self->summary, "\\");
        fputs("'\n", out);
        const option *entry;
        for (size_t o = 0; (entry = option_at(self, o)) != NULL; o++) {
            put_fish_option(out, self, entry);
        }
        switch (operands_completed_by(self)) {
        case BY_NOTHING:
            break;
        case BY_FILES:
            fprintf(out, "complete -c muonium -n '__fish_seen_subcommand_from %s' -F\n",
                    self->name);
            break;
        case BY_NAMES:
            fprintf(out, "complete -c muonium -n '__fish_seen_subcommand_from %s' -a '",
                    self->name);
            put_names(out, operand_candidate, self);
            fputs("'\n", out);
            break;
        }
    }
}

/* ---- the command ---- */

static const struct {
    const char *name;
    void (*print)(FILE *out);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

enum { SHELLS = sizeof shells / sizeof shells[0] };

static const char *shell_name(int index)
{
    return index < SHELLS ? shells[index].name : NULL;
}

static int run(const command *self, const arguments *given)
{
    for (int i = 0; i < SHELLS; i++) {
        if (strcmp(given->operand[0], shells[i].name) == 0) {
            shells[i].print(stdout);
            return EXIT_OK;
        }
    }
    return message_usage(self->name, "'%s' is not one of the shells bash, zsh and fish",
                         given->operand[0]);
}

const command command_completion = {
    .name = "completion",
    .summary = "print a completion script for a shell",
    .description =
        "Prints a completion script for bash, zsh or fish. It completes commands, options and the "
        "values of options. An installed Muonium comes with these scripts.",
    .example = "eval \"$(muonium completion bash)\"\n"
               "muonium completion fish > ~/.config/fish/completions/muonium.fish",
    .options = NULL,
    .option_count = 0,
    .operands = "SHELL",
    .least_operands = 1,
    .most_operands = 1,
    .operand_choice = shell_name,
    .run = run,
};
