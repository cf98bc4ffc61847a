/*
 * locales.c: the program has set a locale in which numbers have a decimal comma, or other
 * digits' separators, or letters another case. Files, messages, logs and results are the
 * same bytes as in the C locale, and so is what the command prints.
 */
#include "faults.h"

#include <libgen.h>
#include <locale.h>
#include <unistd.h>

typedef struct place {
    const char *name, *character_set;
    bool comma; /* or anything else but a point */
} place;

static const place places[] = {
    {"de_DE", "UTF-8", true},      {"fr_FR", "ISO-8859-1", true},
    {"tr_TR", "ISO-8859-9", true}, /* the small letter of I is not i */
    {"ps_AF", "UTF-8", true},      /* the decimal separator has two bytes */
    {"ja_JP", "EUC-JP", false},
};

enum { PLACES = sizeof places / sizeof places[0] };

/* Compile a locale into the directory of the kind; none of these need be installed. */
static bool make_locale(const place *p, char name[64])
{
    char command[256];
    snprintf(name, 64, "%s.%s", p->name, p->character_set);
    snprintf(command, sizeof command, "localedef -i %s -f %s '%s/%s' >/dev/null 2>&1", p->name,
             p->character_set, files_directory(), name);
    return system(command) == 0;
}

/* ---- the library ---- */

static const char *reason_of(const char *name, char reason[64])
{
    float data[36] = {0};
    muonium_optimizer *optimizer;
    muonium_parameter_report report;
    muonium_tensor tensor = {
        .name = name, .dtype = MUONIUM_F32, .ndim = 2, .shape = {6, 6}, .data = data};
    assert_ok(muonium_create(NULL, &optimizer));
    assert_ok(muonium_add(optimizer, &tensor, NULL));
    assert_ok(muonium_report(optimizer, 0, &report));
    snprintf(reason, 64, "%s", report.reason);
    muonium_destroy(optimizer);
    return reason;
}

static void live_abroad(const char *where, const bytes *at_home)
{
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        fault_where("%s, %s", where, configurations[i].name);
        if (fault_next()) {
            bytes view = subject_whole_life(&configurations[i], "abroad");
            view.data[view.count / 2] ^= fault_sabotage(0, 1);
            fault_expect(bytes_equal(&view, &at_home[i]),
                         "files, messages or results differ from those in the C locale");
            bytes_free(&view);
        }
    }
    char reason[64];
    fault_where("%s, a name in capitals", where);
    if (fault_next()) {
        const char *found = fault_sabotage(0, 1) ? "ok" : reason_of("LN.BIAS", reason);
        fault_expect(strncmp(found, "name_pattern:", 13) == 0, "is routed by \"%s\"", found);
    }
}

/* ---- the command ---- */

static const char *const commands[] = {
    "coeffs --steps 8 --lower 0.001 --safety 0.02 --cushion 0.02",
    "coeffs --steps 5 --json",
    "coeffs --lower 1,5",
    "coeffs --lower 1.5",
    "info --json",
    "inspect '%s'",
};

static bytes output_of(const char *program, const char *arguments, const char *state,
                       const char *locale_name)
{
    char filled[256], command[1024], buffer[4096];
    bytes output = {0};
    snprintf(filled, sizeof filled, strstr(arguments, "%s") != NULL ? "inspect '%s'" : "%s",
             strstr(arguments, "%s") != NULL ? state : arguments);
    /* Kernels that are named are not measured, so that `info` prints the same every time. */
    snprintf(command, sizeof command,
             "MUONIUM_CPU=portable LC_ALL=%s LOCPATH='%s' '%s' %s 2>&1; echo $?", locale_name,
             files_directory(), program, filled);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        assert_true(bytes_append(&output, buffer, got));
    }
    pclose(pipe);
    return output;
}

static void run_commands_abroad(const char *locale_name, const char *state)
{
    char program[4200] = "", self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) { /* build/tests/faults beside build/muonium */
        self[length] = '\0';
        snprintf(program, sizeof program, "%s/../muonium", dirname(self));
    }
    if (access(program, X_OK) != 0) {
        return; /* the harness alone was built */
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fault_where("%s, muonium %s", locale_name, commands[i]);
        if (fault_next()) {
            bytes home = output_of(program, commands[i], state, "C");
            bytes abroad = output_of(program, commands[i], state, locale_name);
            abroad.count -= fault_sabotage(0, 1);
            fault_expect(home.count > 20 && bytes_equal(&home, &abroad),
                         "the command prints other bytes than in the C locale");
            bytes_free(&home);
            bytes_free(&abroad);
        }
    }
}

void faults_of_locales(void)
{
    bytes at_home[CONFIGURATIONS];
    files_without_sync();
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        at_home[i] = subject_whole_life(&configurations[i], "home");
    }
    static subject s;
    subject_begin(&s, subject_configuration("muonium"), "state");
    assert_ok(subject_live(&s, 0, life_length)); /* leaves a file for the command */
    size_t made = 0;
    for (size_t i = 0; i < PLACES; i++) {
        char name[64], where[96];
        if (!make_locale(&places[i], name)) {
            continue;
        }
        made++;
        assert_int_equal(setenv("LOCPATH", files_directory(), 1), 0);
        assert_non_null(setlocale(LC_ALL, name));
        assert_true(places[i].comma == (strcmp(localeconv()->decimal_point, ".") != 0));
        snprintf(where, sizeof where, "setlocale %s", name);
        live_abroad(where, at_home);
        assert_string_equal(setlocale(LC_ALL, NULL), name);
        assert_non_null(setlocale(LC_ALL, "C"));

        locale_t of_thread = newlocale(LC_ALL_MASK, name, (locale_t)0);
        assert_true(of_thread != (locale_t)0);
        uselocale(of_thread);
        snprintf(where, sizeof where, "uselocale %s", name);
        live_abroad(where, at_home);
        assert_true(uselocale((locale_t)0) == of_thread);
        uselocale(LC_GLOBAL_LOCALE);
        freelocale(of_thread);
        run_commands_abroad(name, s.path);
    }
    subject_end(&s);
    for (size_t i = 0; i < CONFIGURATIONS; i++) {
        bytes_free(&at_home[i]);
    }
    if (made == 0) {
        fault_skip("localedef makes no locale here: install the package locales");
    }
}
