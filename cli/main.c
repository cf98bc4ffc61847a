/*
 * main.c: finds the subcommand, parses its options, runs it, and makes sure
 * that what it printed has arrived.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build.h"
#include "command.h"
#include "text.h"

static const char *command_candidate(const void *context, size_t index)
{
    (void)context;
    return command_name((int)index);
}

static int unknown_command(const char *name)
{
    const char *near = text_nearest(name, command_candidate, NULL);
    return message_usage(NULL, "unknown %s '%s'%s%s%s", name[0] == '-' ? "option" : "command", name,
                         near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                         near != NULL ? "'?" : "");
}

static int check_operands(const command *self, const arguments *given)
{
    if (given->operands > self->most_operands) {
        return message_usage(self->name, "unexpected argument '%s'",
                             given->operand[self->most_operands]);
    }
    if (given->operands < self->least_operands) {
        return message_usage(self->name, "needs %s, but %zu of %zu %s given", self->operands,
                             given->operands, self->least_operands,
                             given->operands == 1 ? "is" : "are");
    }
    return EXIT_OK;
}

static int run_command(const command *self, int argc, char **argv)
{
    size_t count = options_count(self->options, self->option_count);
    option_value *value = calloc(count + 1, sizeof *value); /* none is no failure */
    if (value == NULL) {
        return message_failed(self->name, "out of memory");
    }
    arguments given;
    int code = EXIT_USAGE;
    if (options_parse(self->name, self->options, count, argc, argv, value, &given)) {
        if (given.help) {
            help_command(stdout, self);
            code = EXIT_OK;
        } else {
            code = check_operands(self, &given);
            code = code == EXIT_OK ? self->run(self, &given) : code;
        }
    }
    free(value);
    return code;
}

static int help_about(int argc, char **argv)
{
    if (argc > 1) {
        return message_usage(NULL, "unexpected argument '%s'", argv[1]);
    }
    if (argc == 0) {
        help_overview(stdout);
        return EXIT_OK;
    }
    const command *self = command_find(argv[0]);
    if (self == NULL) {
        return unknown_command(argv[0]);
    }
    help_command(stdout, self);
    return EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("muonium %s\ncompiler %s, %s", muonium_version(), build_compiler,
               build_architecture);
        printf("%s%s\n", build_flags ? ", " : "", build_flags ? build_flags : "");
        return EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return help_about(argc - 2, argv + 2);
    }
    const command *self = command_find(name);
    return self != NULL ? run_command(self, argc - 2, argv + 2) : unknown_command(name);
}

/* If a standard stream is closed, the first file opened would take its place
 * and receive what is printed. Opened for reading, stdout fails as it should. */
static void occupy_closed_streams(void)
{
    int file;
    do {
        file = open("/dev/null", O_RDONLY);
    } while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0) {
        close(file);
    }
}

/* Whether nobody reads the standard output any more, as after `muonium route ... | head`. */
static bool reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int main(int argc, char **argv)
{
    commands_prepare();
    occupy_closed_streams();
    /* A reader that goes away must not be a death with a file half done: what the command
     * writes elsewhere is finished first. */
    signal(SIGPIPE, SIG_IGN);
    int code = dispatch(argc, argv);
    errno = 0;
    bool failed_before = ferror(stdout) != 0, failed_now = fflush(stdout) != 0;
    if ((failed_before || failed_now) && reader_is_gone()) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE); /* as of any program that writes to a closed pipe, without a word */
    }
    if (failed_now || failed_before || close(STDOUT_FILENO) != 0) {
        /* After an earlier failure the reason may be gone. */
        message_failed(NULL, "cannot write to standard output%s%s", errno != 0 ? ": " : "",
                       errno != 0 ? strerror(errno) : "");
        return code != EXIT_OK ? code : EXIT_FAILED;
    }
    return code;
}
