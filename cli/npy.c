/*
 * npy.c: strict reader and writer of .npy.
 *
 * A file is a magic string, a version, the length of the header, the header,
 * and the data. The header is a Python dictionary literal; of that language
 * just what the format defines is understood here: three keys, each once, in
 * any order, strings without escapes, True and False, and tuples of integers.
 */
#include "npy.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is used as it lies in the file");

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *descr, *name;
    muonium_dtype dtype;
} types[] = {
    {"<f2", "float16", MUONIUM_F16},
    {"<f4", "float32", MUONIUM_F32},
    {"<f8", "float64", MUONIUM_F64},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* A stretch of the header. */
typedef struct span {
    const unsigned char *at, *end;
} span;

/* A copy of a span for messages: cut short, and without control characters. */
typedef struct excerpt {
    char text[48];
} excerpt;

static excerpt excerpt_of(span s)
{
    excerpt copy;
    size_t n = 0;
    for (; s.at < s.end && n < sizeof copy.text - 4; s.at++) {
        copy.text[n++] = *s.at >= ' ' && *s.at < 127 ? (char)*s.at : '?';
    }
    strcpy(copy.text + n, s.at < s.end ? "..." : "");
    return copy;
}

static bool equals(span s, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(s.end - s.at) == length && memcmp(s.at, word, length) == 0;
}

static void skip_spaces(span *in)
{
    while (in->at < in->end && *in->at == ' ') {
        in->at++;
    }
}

/* Consume `symbol`, after spaces, if it comes next. */
static bool take(span *in, unsigned char symbol)
{
    skip_spaces(in);
    if (in->at == in->end || *in->at != symbol) {
        return false;
    }
    in->at++;
    return true;
}

static bool expected(const char *thing, span in, problem *what)
{
    return problem_set(what, "malformed header: expected %s at '%s'", thing, excerpt_of(in).text);
}

static bool take_string(span *in, span *content)
{
    skip_spaces(in);
    if (in->at == in->end || (*in->at != '\'' && *in->at != '"')) {
        return false;
    }
    unsigned char quote = *in->at;
    const unsigned char *at = in->at + 1;
    content->at = at;
    while (at < in->end && *at != quote && *at != '\\') {
        at++;
    }
    if (at == in->end || *at != quote) {
        return false;
    }
    content->end = at;
    in->at = at + 1;
    return true;
}

static bool parse_descr(span *in, npy_array *array, problem *what)
{
    static const char readable[] = "only '<f2', '<f4' and '<f8' are read";
    skip_spaces(in);
    if (in->at < in->end && (*in->at == '[' || *in->at == '(')) {
        return problem_set(what, "the elements are structures (descr is %s): %s",
                           excerpt_of(*in).text, readable);
    }
    span descr;
    if (!take_string(in, &descr)) {
        return expected("a string as descr", *in, what);
    }
    for (size_t i = 0; i < TYPES; i++) {
        if (equals(descr, types[i].descr)) {
            array->dtype = types[i].dtype;
            return true;
        }
    }
    bool empty = descr.at == descr.end;
    const char *kind = !empty && *descr.at == '>'       ? "big-endian data "
                       : !empty && descr.end[-1] == 'O' ? "Python objects "
                                                        : "";
    return problem_set(what, "%s(descr is '%s'): %s; convert with array.astype('<f4')",
                       *kind != 0 ? kind : "unsupported element type ", excerpt_of(descr).text,
                       readable);
}

static bool parse_order(span *in, npy_array *array, problem *what)
{
    skip_spaces(in);
    size_t left = (size_t)(in->end - in->at);
    for (int value = 0; value <= 1; value++) {
        const char *word = value ? "True" : "False";
        size_t length = strlen(word);
        if (left >= length && memcmp(in->at, word, length) == 0) {
            in->at += length;
            array->fortran_order = value != 0;
            return true;
        }
    }
    return expected("True or False as fortran_order", *in, what);
}

static bool take_dimension(span *in, size_t *value, problem *what)
{
    skip_spaces(in);
    span start = *in;
    *value = 0;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9') {
        if (__builtin_mul_overflow(*value, (size_t)10, value) ||
            __builtin_add_overflow(*value, (size_t)(*in->at - '0'), value)) {
            return problem_set(what, "a dimension is too large: '%s'", excerpt_of(start).text);
        }
        in->at++;
    }
    bool leading_zero = in->at - start.at > 1 && *start.at == '0';
    return (in->at > start.at && !leading_zero) || expected("a dimension", start, what);
}

static bool parse_shape(span *in, npy_array *array, problem *what)
{
    if (!take(in, '(')) {
        return expected("a tuple as shape", *in, what);
    }
    array->dims = 0;
    array->count = 1;
    bool comma = false;
    while (!take(in, ')')) {
        if (array->dims > 0 && !comma) {
            return expected("',' or ')' in shape", *in, what);
        }
        if (array->dims == NPY_MAX_DIMS) {
            return problem_set(what, "more than %d dimensions", NPY_MAX_DIMS);
        }
        size_t *dimension = &array->shape[array->dims];
        if (!take_dimension(in, dimension, what)) {
            return false;
        }
        array->dims++;
        if (__builtin_mul_overflow(array->count, *dimension, &array->count)) {
            return problem_set(what, "the shape has more elements than this system can address");
        }
        comma = take(in, ',');
    }
    if (array->dims == 1 && !comma) { /* (3) is a number in parentheses, (3,) a tuple */
        return problem_set(what, "malformed header: shape is not a tuple");
    }
    return true;
}

static bool parse_dictionary(span in, npy_array *array, problem *what)
{
    static const struct {
        const char *name;
        bool (*parse)(span *in, npy_array *array, problem *what);
    } keys[] = {{"descr", parse_descr}, {"fortran_order", parse_order}, {"shape", parse_shape}};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    bool seen[KEYS] = {false};

    if (!take(&in, '{')) {
        return expected("'{'", in, what);
    }
    for (bool comma = true; !take(&in, '}'); comma = take(&in, ',')) {
        span key;
        if (!comma) {
            return expected("',' or '}'", in, what);
        }
        if (!take_string(&in, &key)) {
            return expected("a key", in, what);
        }
        size_t k = 0;
        while (k < KEYS && !equals(key, keys[k].name)) {
            k++;
        }
        if (k == KEYS) {
            return problem_set(what, "malformed header: unknown key '%s'", excerpt_of(key).text);
        }
        if (seen[k]) {
            return problem_set(what, "malformed header: key '%s' is there twice", keys[k].name);
        }
        seen[k] = true;
        if (!take(&in, ':')) {
            return expected("':'", in, what);
        }
        if (!keys[k].parse(&in, array, what)) {
            return false;
        }
    }
    for (size_t k = 0; k < KEYS; k++) {
        if (!seen[k]) {
            return problem_set(what, "malformed header: key '%s' is missing", keys[k].name);
        }
    }
    skip_spaces(&in);
    if (in.end - in.at != 1 || *in.at != '\n') {
        return expected("spaces and a final newline", in, what);
    }
    return true;
}

bool npy_parse(const unsigned char *bytes, size_t size, npy_array *array, problem *what)
{
    *array = (npy_array){0};
    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0) {
        return problem_set(what, "not a .npy file: it does not start with \\x93NUMPY");
    }
    if (size < 8) {
        return problem_set(what, "truncated: the file ends within the version");
    }
    unsigned major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0) {
        return problem_set(what, "format version %u.%u: only 1.0, 2.0 and 3.0 are read", major,
                           minor);
    }
    size_t width = major == 1 ? 2 : 4, length = 0;
    if (size < 8 + width) {
        return problem_set(what, "truncated: the file ends within the header length");
    }
    for (size_t i = width; i-- > 0;) {
        length = length << 8 | bytes[8 + i];
    }
    size_t start = 8 + width;
    if (length > size - start) {
        return problem_set(what, "truncated: the header should have %zu bytes, the file has %zu",
                           length, size - start);
    }
    array->data_offset = start + length;
    span header = {bytes + start, bytes + array->data_offset};
    if (!parse_dictionary(header, array, what)) {
        return false;
    }
    size_t promised, present = size - array->data_offset;
    if (__builtin_mul_overflow(array->count, muonium_dtype_size(array->dtype), &promised)) {
        return problem_set(what, "the shape has more elements than this system can address");
    }
    if (promised != present) {
        return problem_set(what, "%s: the header promises %zu bytes of data, the file has %zu",
                           present < promised ? "truncated" : "trailing bytes", promised, present);
    }
    return true;
}

void npy_format_shape(const npy_array *array, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (size_t i = 0; i < array->dims && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%zu", i > 0 ? ", " : "", array->shape[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "%s)", array->dims == 1 ? "," : "");
    }
}

size_t npy_format_header(const npy_array *array, unsigned char header[NPY_HEADER_ROOM])
{
    const char *descr = "";
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].dtype == array->dtype) {
            descr = types[i].descr;
        }
    }
    char shape[NPY_MAX_DIMS * 24], text[NPY_HEADER_ROOM];
    npy_format_shape(array, shape, sizeof shape);
    size_t length =
        (size_t)snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                         descr, array->fortran_order ? "True" : "False", shape);
    size_t start = sizeof magic + 4;
    size_t total = (start + length + 1 + 63) / 64 * 64; /* the 1 is the newline */
    size_t padded = total - start;
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (unsigned char)(padded & 0xFF);
    header[9] = (unsigned char)(padded >> 8);
    memcpy(header + start, text, length);
    memset(header + start + length, ' ', padded - length - 1);
    header[total - 1] = '\n';
    return total;
}

const char *npy_dtype_name(muonium_dtype dtype)
{
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].dtype == dtype) {
            return types[i].name;
        }
    }
    return "unknown";
}
