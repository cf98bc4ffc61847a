/*
 * options.h: one table of options per subcommand. Parsing, --help, and whatever
 * else describes the command line are all made from that table.
 *
 * A command names its options by an enumeration and writes the table with
 * designated initialisers, so that values are found by name:
 *
 *     enum { STEPS, JSON };
 *     static const option options[] = {
 *         [STEPS] = {.name = "steps", .type = OPTION_INTEGER, .placeholder = "N",
 *                    .fallback = "5", .least = 1, .most = 64, .help = "number of steps"},
 *         [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON"},
 *     };
 *     ... given->value[STEPS].integer ...
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include <muonium.h>

typedef enum option_type {
    OPTION_FLAG,    /* given or not */
    OPTION_INTEGER, /* -> integer, within least..most */
    OPTION_NUMBER,  /* -> number, finite; its range is checked by whoever uses it */
    OPTION_CHOICE,  /* -> choice, the index of the name; and text */
    OPTION_TEXT,    /* -> text, any string but "" */
    OPTION_LIST,    /* -> list, any strings but "": the option may be repeated */
    OPTION_FILE     /* -> text, the same; a shell completes it as a file name */
} option_type;

typedef struct option {
    const char *name; /* long name, without the dashes */
    char letter;      /* short name; 0 for none */
    option_type type;
    const char *placeholder;    /* what --help calls the value, as "N"; NULL for flags */
    const char *fallback;       /* the default as one would type it, parsed like a typed one; NULL:
                                none, and then the help sentence says what happens without */
    const char *help;           /* a sentence without capital and full stop */
    int least, most;            /* OPTION_INTEGER */
    const char *const *choices; /* OPTION_CHOICE: the names, NULL after the last, or */
    const char *(*choice_name)(int index); /* the function that gives them, NULL past the last.
                                              OPTION_TEXT: some that a shell may offer */
    const muonium_option *setting; /* the option of the library that it sets, which then has the
                                      choices; NULL: none */
} option;

enum { OPTION_LIST_MOST = 32 };

typedef struct option_value {
    bool given; /* on the command line, not by default */
    int integer;
    int choice; /* -1 without a value */
    double number;
    const char *text; /* NULL without a value; the last of a list */
    const char *list[OPTION_LIST_MOST];
    size_t listed;
} option_value;

typedef struct arguments {
    option_value *value; /* one per option of the table */
    char **operand;      /* what is not an option, in order */
    size_t operands;
    bool help; /* --help was met; parsing stopped there */
} arguments;

/* Parse what follows the name of the subcommand. `value` has room for `count`
 * entries; operands are gathered at the front of `argv`. Accepts --name=value,
 * --name value, -xvalue, -x value, and -- before operands that start with a
 * dash; an option may be given once, but for lists. On a mistake prints a message for `command`
 * and returns false. */
bool options_parse(const char *command, const option *options, size_t count, int argc, char **argv,
                   option_value *value, arguments *out);

/* How many entries of a table of `room` come before the first without a name. */
size_t options_count(const option *options, size_t room);

/* With `option` given, `without` has no effect. */
typedef struct option_clash {
    int option, without;
} option_clash;

/* Refuse options that would be ignored: whoever gives one expects an effect.
 * Prints a message and returns false if two that clash are given. */
bool options_agree(const char *command, const option *options, const option_value *value,
                   const option_clash *clashes, size_t count);

/* The names of an option's choices by index, NULL past the last and where it has none. */
const char *option_choice(const option *entry, int index);

/* Read a whole string as a decimal number: no spaces, no hexadecimal, nothing
 * left over, and nothing that overflows or vanishes. False if it is not one. */
bool parse_integer(const char *text, long long *result);
bool parse_number(const char *text, double *result);

#endif
