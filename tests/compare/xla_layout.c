/*
 * xla_layout.c: src/xla/ffi.h describes the layout of xla/ffi/api/c_api.h of an installed jaxlib.
 * Compiled by test_jax.py, against the header in jax.ffi.include_dir().
 */
#include <xla/ffi/api/c_api.h>

#include "xla/ffi.h"

#define SAME(what, ours, theirs) _Static_assert((ours) == (theirs), what)
#define SIZE(ours, theirs) SAME("size of " #ours, sizeof(ours), sizeof(theirs))
#define FIELD(ours, field, theirs, their_field)                                                    \
    SAME("place of " #ours "." #field, offsetof(ours, field), offsetof(theirs, their_field));      \
    SAME("size of " #ours "." #field, sizeof(((ours *)0)->field),                                  \
         sizeof(((theirs *)0)->their_field))

SAME("major version", MU_XLA_MAJOR, XLA_FFI_API_MAJOR);
SAME("minor version", MU_XLA_MINOR, XLA_FFI_API_MINOR);
SAME("metadata", (int)MU_XLA_METADATA, (int)XLA_FFI_Extension_Metadata);
SAME("execute", (int)MU_XLA_EXECUTE, (int)XLA_FFI_ExecutionStage_EXECUTE);
SAME("argument", (int)MU_XLA_BUFFER, (int)XLA_FFI_ArgType_BUFFER);
SAME("result", (int)MU_XLA_BUFFER, (int)XLA_FFI_RetType_BUFFER);
SAME("array", (int)MU_XLA_ARRAY, (int)XLA_FFI_AttrType_ARRAY);
SAME("string", (int)MU_XLA_STRING, (int)XLA_FFI_AttrType_STRING);
SAME("f16", (int)MU_XLA_F16, (int)XLA_FFI_DataType_F16);
SAME("f32", (int)MU_XLA_F32, (int)XLA_FFI_DataType_F32);
SAME("f64", (int)MU_XLA_F64, (int)XLA_FFI_DataType_F64);
SAME("bf16", (int)MU_XLA_BF16, (int)XLA_FFI_DataType_BF16);
SAME("invalid", (int)MU_XLA_INVALID_ARGUMENT, (int)XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME("exhausted", (int)MU_XLA_RESOURCE_EXHAUSTED, (int)XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME("precondition", (int)MU_XLA_FAILED_PRECONDITION, (int)XLA_FFI_Error_Code_FAILED_PRECONDITION);
SAME("internal", (int)MU_XLA_INTERNAL, (int)XLA_FFI_Error_Code_INTERNAL);

SIZE(mu_xla_extension, XLA_FFI_Extension_Base);
FIELD(mu_xla_extension, struct_size, XLA_FFI_Extension_Base, struct_size);
FIELD(mu_xla_extension, type, XLA_FFI_Extension_Base, type);
FIELD(mu_xla_extension, next, XLA_FFI_Extension_Base, next);

SIZE(mu_xla_version, XLA_FFI_Api_Version);
FIELD(mu_xla_version, extension, XLA_FFI_Api_Version, extension_start);
FIELD(mu_xla_version, major, XLA_FFI_Api_Version, major_version);
FIELD(mu_xla_version, minor, XLA_FFI_Api_Version, minor_version);

SIZE(mu_xla_error_args, XLA_FFI_Error_Create_Args);
FIELD(mu_xla_error_args, message, XLA_FFI_Error_Create_Args, message);
FIELD(mu_xla_error_args, code, XLA_FFI_Error_Create_Args, errc);

/* Of the functions only the first is described. */
FIELD(mu_xla_api, version, XLA_FFI_Api, api_version);
FIELD(mu_xla_api, internal, XLA_FFI_Api, internal_api);
FIELD(mu_xla_api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);

SIZE(mu_xla_span, XLA_FFI_ByteSpan);
FIELD(mu_xla_span, text, XLA_FFI_ByteSpan, ptr);
FIELD(mu_xla_span, length, XLA_FFI_ByteSpan, len);

SIZE(mu_xla_buffer, XLA_FFI_Buffer);
FIELD(mu_xla_buffer, dtype, XLA_FFI_Buffer, dtype);
FIELD(mu_xla_buffer, data, XLA_FFI_Buffer, data);
FIELD(mu_xla_buffer, rank, XLA_FFI_Buffer, rank);
FIELD(mu_xla_buffer, dims, XLA_FFI_Buffer, dims);

SIZE(mu_xla_array, XLA_FFI_Array);
FIELD(mu_xla_array, dtype, XLA_FFI_Array, dtype);
FIELD(mu_xla_array, size, XLA_FFI_Array, size);
FIELD(mu_xla_array, data, XLA_FFI_Array, data);

SIZE(mu_xla_list, XLA_FFI_Args);
FIELD(mu_xla_list, size, XLA_FFI_Args, size);
FIELD(mu_xla_list, types, XLA_FFI_Args, types);
FIELD(mu_xla_list, items, XLA_FFI_Args, args);
SIZE(mu_xla_list, XLA_FFI_Rets);
FIELD(mu_xla_list, size, XLA_FFI_Rets, size);
FIELD(mu_xla_list, types, XLA_FFI_Rets, types);
FIELD(mu_xla_list, items, XLA_FFI_Rets, rets);

SIZE(mu_xla_attributes, XLA_FFI_Attrs);
FIELD(mu_xla_attributes, size, XLA_FFI_Attrs, size);
FIELD(mu_xla_attributes, types, XLA_FFI_Attrs, types);
FIELD(mu_xla_attributes, names, XLA_FFI_Attrs, names);
FIELD(mu_xla_attributes, values, XLA_FFI_Attrs, attrs);

SIZE(mu_xla_frame, XLA_FFI_CallFrame);
FIELD(mu_xla_frame, extension, XLA_FFI_CallFrame, extension_start);
FIELD(mu_xla_frame, api, XLA_FFI_CallFrame, api);
FIELD(mu_xla_frame, context, XLA_FFI_CallFrame, ctx);
FIELD(mu_xla_frame, stage, XLA_FFI_CallFrame, stage);
FIELD(mu_xla_frame, arguments, XLA_FFI_CallFrame, args);
FIELD(mu_xla_frame, results, XLA_FFI_CallFrame, rets);
FIELD(mu_xla_frame, attributes, XLA_FFI_CallFrame, attrs);
FIELD(mu_xla_frame, future, XLA_FFI_CallFrame, future);

SIZE(mu_xla_metadata, XLA_FFI_Metadata);
FIELD(mu_xla_metadata, version, XLA_FFI_Metadata, api_version);
FIELD(mu_xla_metadata, traits, XLA_FFI_Metadata, traits);
FIELD(mu_xla_metadata, state_type, XLA_FFI_Metadata, state_type_id);

SIZE(mu_xla_metadata_extension, XLA_FFI_Metadata_Extension);
FIELD(mu_xla_metadata_extension, base, XLA_FFI_Metadata_Extension, extension_base);
FIELD(mu_xla_metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);
