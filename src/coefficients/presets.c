/*
 * presets.c: the published tables of coefficients, as published.
 */
#include "coefficients/coefficients.h"

#include <stdio.h>
#include <string.h>

#define MOST_ROWS 8

typedef struct preset {
    const char *name;
    int count;
    double rows[MOST_ROWS][3];
} preset;

static const preset presets[] = {
    {"original", 1, {{3.4445, -4.7750, 2.0315}}},
    {"quintic",
     5,
     {{4.0848, -6.8946, 2.9270},
      {3.9505, -6.3029, 2.6377},
      {3.7418, -5.5913, 2.3037},
      {2.8769, -3.1427, 1.2046},
      {2.8366, -3.0525, 1.2012}}},
    {"polar_express", /* generated for eight iterations, safety 1e-2, cushion 0.02 */
     8,
     {{8.237312490495555, -23.157747414558198, 16.680568411445915},
      {4.082441999064835, -2.893047735332586, 0.5252849256975648},
      {3.9263479922546582, -2.8547468034765298, 0.5318022422894988},
      {3.2982187133085143, -2.424541981026706, 0.48632008358844075},
      {2.2970369434552573, -1.63662558125903, 0.4002628455953627},
      {1.8763805351440397, -1.2347896577722228, 0.35891887501668385},
      {1.8564423485617974, -1.2132449880935525, 0.3568003487825883},
      {1.8749994008682747, -1.2499988017229169, 0.3749994008546422}}},
    {"polar_express_safer", /* the same with safety 2e-2 */
     8,
     {{8.156554524902461, -22.48329292557795, 15.878769915207462},
      {4.0429299351667245, -2.808917465908704, 0.5000178451051299},
      {3.8916678022926563, -2.7724841532176825, 0.5060648178503389},
      {3.285753657755658, -2.3681294933425394, 0.46449024233003117},
      {2.3005307116270983, -1.6111665557258408, 0.3833374427545273},
      {1.8631210546382593, -1.2042160621002727, 0.3421879560523383},
      {1.8382572152247512, -1.1779263289537742, 0.3396513038637379},
      {1.8749999923301852, -1.2499999836060613, 0.374999991275876}}},
    {"polar_express_5", /* generated for five iterations, safety 2e-2, cushion 0.02 */
     5,
     {{8.156554524902461, -22.48329292557795, 15.878769915207462},
      {4.042929935166739, -2.808917465908714, 0.5000178451051316},
      {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
      {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
      {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}},
    {"cans",
     5,
     {{8.4703, -25.1081, 18.6293},
      {4.1828, -3.1087, 0.5806},
      {3.9619, -2.9541, 0.5630},
      {3.2866, -2.4647, 0.5074},
      {2.2737, -1.6447, 0.4162}}},
    {"aol", /* for normalisation aol: four rows reach what takes five elsewhere */
     4,
     {{4.6051, -9.6552, 5.6769},
      {4.7505, -6.0861, 2.1790},
      {2.7763, -2.3190, 0.5523},
      {2.4231, -2.2861, 0.8193}}},
    {"cubic",
     5,
     {{3.3656576, -3.3420992, 0.0},
      {2.5744352, -1.4957376, 0.0},
      {2.5368962, -1.4312570, 0.0},
      {2.4418906, -1.2764040, 0.0},
      {2.2230472, -0.9630650, 0.0}}},
};

#define PRESETS ((int)(sizeof presets / sizeof presets[0]))

const char *muonium_preset_name(int index)
{
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

int muonium_preset_rows(int index)
{
    return index >= 0 && index < PRESETS ? presets[index].count : 0;
}

/* The preset of that name, or NULL after recording an error that lists the names. */
static const preset *find_preset(const char *name)
{
    for (int i = 0; name != NULL && i < PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    char valid[256] = "";
    size_t used = 0;
    for (int i = 0; i < PRESETS && used < sizeof valid; i++) {
        const int length =
            snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", presets[i].name);
        used += length > 0 ? (size_t)length : 0;
    }
    if (name == NULL) {
        mu_fail(MUONIUM_INVALID, "the name of the preset is NULL: valid names are %s", valid);
    } else {
        mu_fail(MUONIUM_INVALID, "no preset of coefficients is named \"%.64s\": valid names are %s",
                name, valid);
    }
    return NULL;
}

muonium_status muonium_coefficients(const char *name, int steps, double (*table)[3])
{
    const preset *found = find_preset(name);
    if (found == NULL || mu_check_steps(steps) != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (table == NULL) {
        return mu_fail(MUONIUM_INVALID, "table is NULL: pass room for %d rows of 3 numbers", steps);
    }
    mu_fill_table(found->rows, (size_t)found->count, steps, table);
    return MUONIUM_OK;
}
