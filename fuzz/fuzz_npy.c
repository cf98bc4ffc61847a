/*
 * fuzz_npy.c: a libFuzzer target for the .npy reader. Whatever the bytes, it refuses them
 * with a message or gives an array that fills the file exactly; and the header that is
 * written for such an array is understood as the same array.
 */
#include "npy.h"

#include "fuzz.h"

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

static void check_array(const npy_array *array, size_t size)
{
    size_t count = 1;
    demand(array->dims <= NPY_MAX_DIMS && array->data_offset <= size);
    for (size_t i = 0; i < array->dims; i++) {
        demand(!__builtin_mul_overflow(count, array->shape[i], &count));
    }
    demand(count == array->count);
    demand(count * muonium_dtype_size(array->dtype) == size - array->data_offset);
    demand(strcmp(npy_dtype_name(array->dtype), "unknown") != 0);
}

static void write_again(const npy_array *array, const uint8_t *data, size_t size)
{
    unsigned char header[NPY_HEADER_ROOM];
    size_t length = npy_format_header(array, header), bytes = size - array->data_offset;
    buffer file = {0};
    npy_array again;
    problem what;
    demand(length % 64 == 0 && length <= sizeof header);
    append(&file, header, length);
    if (bytes > 0) {
        append(&file, data + array->data_offset, bytes);
    }
    demand(npy_parse(file.bytes, file.count, &again, &what));
    demand(again.dtype == array->dtype && again.fortran_order == array->fortran_order);
    demand(again.dims == array->dims && again.count == array->count);
    demand(memcmp(again.shape, array->shape, array->dims * sizeof array->shape[0]) == 0);
    free(file.bytes);
}

static void format_shapes(const npy_array *array)
{
    for (size_t room = 1; room < 40; room++) {
        char *text = malloc(room); /* of its own, so that tools see what is written */
        demand(text != NULL);
        npy_format_shape(array, text, room);
        demand(memchr(text, '\0', room) != NULL);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    npy_array array;
    problem what = {""};
    if (npy_parse(data, size, &array, &what)) {
        check_array(&array, size);
        write_again(&array, data, size);
        format_shapes(&array);
    } else {
        demand(what.text[0] != '\0' && is_printable(what.text));
    }
    return 0;
}
