/*
 * convert_template.h: elements and rows of any type as T. Included by rows_template.h and by the
 * packing of the micro-kernels; rows_template.h lists the parameters. No include guard, on purpose.
 */
static T NAME(load_one)(const void *from, muonium_dtype dtype)
{
    uint16_t half;
    float single;
    double real;
    switch (dtype) {
    case MUONIUM_F32:
        memcpy(&single, from, sizeof single);
        return (T)single;
    case MUONIUM_F64:
        memcpy(&real, from, sizeof real);
        return (T)real;
    case MUONIUM_BF16:
        memcpy(&half, from, sizeof half);
        return (T)mu_f32_from_bf16(half);
    case MUONIUM_F16:
        memcpy(&half, from, sizeof half);
        return (T)mu_f32_from_f16(half);
    default: /* no type of elements: callers check */
        return (T)NAN;
    }
}

static void NAME(load_row)(const void *from, muonium_dtype dtype, ptrdiff_t stride, size_t n,
                           T *restrict to)
{
    const char *source = from;
    ptrdiff_t step = stride * (ptrdiff_t)muonium_dtype_size(dtype);
    size_t i = 0;
    if (stride == 1 && dtype == T_DTYPE) {
        memcpy(to, from, n * sizeof(T));
        return;
    }
    if (stride == 1) {
        for (; i + VL <= n; i += VL) {
            VEC(store)(to + i, VEC(widen)(dtype, source + (ptrdiff_t)i * step));
        }
    }
    for (; i < n; i++) {
        to[i] = NAME(load_one)(source + (ptrdiff_t)i * step, dtype);
    }
}
