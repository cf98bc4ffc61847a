#!/usr/bin/env python3
"""Make the safetensors fixtures of the tests and the seeds of the fuzzer.

    tools/make_hostile_safetensors.py

writes, under the root of the source tree,

    tests/data/hostile/*.safetensors  files that a reader must refuse; the name says why
    tests/data/hostile/expected.txt   for each, a piece of the message: "<file>\t<piece>"
    tests/data/good/*.safetensors     files that a reader must accept
    fuzz/corpus/safetensors/*         all of them

The same files result from every run.
"""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pack(header, data=b"", length=None):
    """A file from its header as text or bytes; `length` lies about its size."""
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype="F32", shape="[2]", offsets="[0,8]"):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(name="w", data=bytes(8), **fields):
    """A file with one tensor, whose fields are given as JSON text."""
    return pack(f'{{"{name}":{entry(**fields)}}}', data)


def raw_entry(body, data=bytes(8)):
    return pack(f'{{"w":{body}}}', data)


def two(first="[0,8]", second="[8,16]", data=bytes(16)):
    return pack(f'{{"first":{entry(offsets=first)},"second":{entry(offsets=second)}}}', data)


def metadata(body):
    return pack(f'{{"__metadata__":{body},"w":{entry()}}}', bytes(8))


HOSTILE = {
    # The length of the header.
    "empty-file": (b"", "0 bytes are too few"),
    "seven-bytes": (bytes(7), "7 bytes are too few"),
    "length-only": (struct.pack("<Q", 10), "a header of 10 bytes in a file of 8"),
    "length-zero": (pack(""), "does not start with '{'"),
    "length-beyond-file": (pack("{}", length=3), "a header of 3 bytes in a file of 10"),
    "length-beyond-limit": (pack("{}", length=100000001), "a header of 100000001 bytes"),
    "length-huge": (pack("{}", length=2**64 - 1), "a header of 18446744073709551615 bytes"),
    "length-sum-overflows": (pack("{}", length=2**64 - 8), "a header of 18446744073709551608"),
    "length-too-small": (pack('{"a":1}', length=3), "a string does not end at byte 3"),
    "length-big-endian": (b"\0\0\0\0\0\0\0\2{}", "but the format allows 100000000"),
    # The JSON as a whole.
    "json-array": (pack("[]"), "does not start with '{'"),
    "json-leading-space": (pack(" {}"), "does not start with '{'"),
    "json-byte-order-mark": (pack("\ufeff{}"), "does not start with '{'"),
    "json-unclosed": (pack('{"w":' + entry(), bytes(8)), "expected ',' or '}'"),
    "json-trailing-comma": (pack('{"w":' + entry() + ",}", bytes(8)), "expected a string"),
    "json-two-objects": (pack("{}{}"), "something other than spaces"),
    "json-padded-with-zeros": (pack(b"{}\0\0"), "something other than spaces"),
    "json-padded-with-newline": (pack("{}\n"), "something other than spaces"),
    "json-single-quotes": (pack("{'w':1}"), "expected a string"),
    "json-comment": (pack("{/**/}"), "expected a string"),
    "json-no-colon": (pack('{"w" {}}'), 'tensor "w": expected \':\''),
    "json-no-comma": (pack(f'{{"a":{entry()}"b":{entry()}}}', bytes(8)), "expected ',' or '}'"),
    "json-deep-arrays": (pack('{"w":' + "[" * 500 + "]" * 500 + "}"), 'tensor "w": expected \'{\''),
    "json-deep-objects": (pack('{"w":' * 500 + "{" + "}" * 501), 'tensor "w": the format has no field "w"'),
    # Strings.
    "string-lone-high-surrogate": (one(r"\ud800"), "lone surrogate"),
    "string-lone-low-surrogate": (one(r"\udc00"), "lone surrogate"),
    "string-high-high-surrogates": (one(r"\ud800\ud800"), "lone surrogate"),
    "string-high-surrogate-then-private-use": (one(r"\ud800\ue000"), "lone surrogate"),
    "string-high-surrogate-then-letter": (one(r"\ud800x"), "lone surrogate"),
    "string-high-surrogate-then-newline": (one(r"\ud800\n12345"), "lone surrogate"),
    "string-high-surrogate-at-end": (pack('{"\\ud800"'), "lone surrogate"),
    "string-surrogate-in-metadata": (metadata(r'{"k":"\udfff"}'), '__metadata__ key "k": a string contains a lone'),
    "string-escaped-zero": (one(r"a\u0000b"), "U+0000"),
    "string-raw-zero": (one("a\0b"), "control character"),
    "string-raw-newline": (one("a\nb"), "control character"),
    "string-unknown-escape": (one(r"\x41"), "unknown escape"),
    "string-short-escape": (one(r"\u12"), "four hexadecimal digits"),
    "string-signed-escape": (one(r"\u+123"), "four hexadecimal digits"),
    "string-unclosed": (pack('{"w'), "does not end"),
    "string-ends-in-backslash": (pack('{"w\\'), "unknown escape"),
    "string-ends-in-escape": (pack('{"\\u00'), "four hexadecimal digits"),
    "utf8-stray-continuation": (pack(b'{"\x80":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-overlong-two": (pack(b'{"\xc0\xaf":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-overlong-three": (pack(b'{"\xe0\x80\xaf":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-overlong-four": (pack(b'{"\xf0\x8f\xbf\xbf":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-surrogate": (pack(b'{"\xed\xa0\x80":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-beyond-unicode": (pack(b'{"\xf4\x90\x80\x80":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-cut-by-quote": (pack(b'{"\xe2\x82":' + entry().encode() + b"}", bytes(8)), "not valid UTF-8"),
    "utf8-cut-by-end": (pack(b'{"\xe2\x82'), "not valid UTF-8"),
    "utf8-in-dtype": (pack(b'{"w":{"dtype":"F\xff"}}'), 'tensor "w": a string is not valid UTF-8'),
    # Names.
    "name-twice": (pack(f'{{"w":{entry()},"w":{entry()}}}', bytes(8)), 'tensor "w": occurs twice'),
    "name-twice-after-unescaping": (
        pack(f'{{"w":{entry()},"x":{entry(offsets="[8,16]")},"\\u0077":{entry(offsets="[16,24]")}}}', bytes(24)),
        'tensor "w": occurs twice'),
    "name-twice-as-surrogate-pair": (
        pack(f'{{"\U0001f600":{entry()},"\\ud83d\\ude00":{entry(offsets="[8,16]")}}}', bytes(16)),
        'tensor "\U0001f600": occurs twice'),
    "name-twice-among-empty": (
        pack('{"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
             '"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
        'tensor "e": occurs twice'),
    "metadata-twice": (pack('{"__metadata__":{},"__metadata__":{}}'), '"__metadata__": occurs twice'),
    "metadata-twice-after-unescaping": (pack('{"__metadata__":{},"\\u005f_metadata__":{}}'), '"__metadata__": occurs twice'),
    # Metadata.
    "metadata-key-twice": (metadata('{"a":"1","b":"2","a":"3"}'), '__metadata__ key "a": occurs twice'),
    "metadata-key-twice-after-unescaping": (metadata(r'{"a":"1","\u0061":"3"}'), '__metadata__ key "a": occurs twice'),
    "metadata-number": (metadata('{"step":1}'), '__metadata__ key "step": expected a string'),
    "metadata-null": (metadata("null"), '"__metadata__": expected \'{\''),
    "metadata-value-null": (metadata('{"a":null}'), '__metadata__ key "a": expected a string'),
    "metadata-nested": (metadata('{"a":{"b":"c"}}'), '__metadata__ key "a": expected a string'),
    "metadata-array": (metadata('["a"]'), '"__metadata__": expected \'{\''),
    # Fields.
    "field-dtype-missing": (raw_entry('{"shape":[2],"data_offsets":[0,8]}'), 'tensor "w": its dtype is missing'),
    "field-shape-missing": (raw_entry('{"dtype":"F32","data_offsets":[0,8]}'), 'tensor "w": its shape is missing'),
    "field-offsets-missing": (raw_entry('{"dtype":"F32","shape":[2]}'), 'tensor "w": its data_offsets are missing'),
    "field-dtype-twice": (raw_entry('{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}'), 'tensor "w": its dtype occurs twice'),
    "field-shape-twice": (raw_entry('{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}'), 'tensor "w": its shape occurs twice'),
    "field-offsets-twice": (raw_entry('{"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offset\\u0073":[0,8]}'), 'tensor "w": its data_offsets occur twice'),
    "field-unknown": (raw_entry('{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}'), 'tensor "w": the format has no field "extra"'),
    "entry-null": (raw_entry("null"), 'tensor "w": expected \'{\''),
    "entry-empty": (raw_entry("{}"), 'tensor "w": its dtype is missing'),
    "entry-string": (raw_entry('"F32"'), 'tensor "w": expected \'{\''),
    # Types.
    "dtype-unknown": (one(dtype="F33"), 'tensor "w": unknown dtype "F33"'),
    "dtype-lower-case": (one(dtype="f32"), 'tensor "w": unknown dtype "f32"'),
    "dtype-empty": (one(dtype=""), 'tensor "w": unknown dtype ""'),
    "dtype-number": (raw_entry('{"dtype":32,"shape":[2],"data_offsets":[0,8]}'), 'tensor "w": expected a string'),
    "dtype-terminal-escape": (one(dtype=r"\u001b[2J"), 'tensor "w": unknown dtype "?[2J"'),
    # Shapes.
    "shape-negative": (one(shape="[-2]"), 'tensor "w": a negative number'),
    "shape-negative-zero": (one(shape="[-0]"), 'tensor "w": a negative number'),
    "shape-fraction": (one(shape="[2.0]"), 'tensor "w": a number with a fraction'),
    "shape-exponent": (one(shape="[2e0]"), 'tensor "w": a number with a fraction or an exponent'),
    "shape-leading-zero": (one(shape="[02]"), 'tensor "w": a number with leading zeros'),
    "shape-plus": (one(shape="[+2]"), 'tensor "w": expected a non-negative integer'),
    "shape-hexadecimal": (one(shape="[0x2]"), "tensor \"w\": expected ',' or ']'"),
    "shape-string": (one(shape='["2"]'), 'tensor "w": expected a non-negative integer'),
    "shape-nested": (one(shape="[[2]]"), 'tensor "w": expected a non-negative integer'),
    "shape-trailing-comma": (one(shape="[2,]"), 'tensor "w": expected a non-negative integer'),
    "shape-number": (one(shape="2"), 'tensor "w": expected \'[\''),
    "shape-2-to-63": (one(shape="[9223372036854775808]"), 'tensor "w": a number beyond 2^63 - 1'),
    "shape-2-to-64": (one(shape="[18446744073709551616]"), 'tensor "w": a number beyond 2^63 - 1'),
    "shape-many-digits": (one(shape="[" + "9" * 400 + "]"), 'tensor "w": a number beyond 2^63 - 1'),
    "shape-product-overflows": (one(shape="[4294967296,4294967296,2]"), 'tensor "w": its 3 extents of F32 overflow'),
    "shape-product-wraps-to-size": (one(shape="[4611686018427387904,4,2]"), 'tensor "w": its 3 extents of F32 overflow'),
    "shape-width-overflows": (one(shape="[4611686018427387906]"), 'tensor "w": its 1 extents of F32 overflow'),
    "shape-overflow-behind-zero": (one(shape="[0,4611686018427387904,4611686018427387904]", offsets="[0,0]", data=b""), 'tensor "w": its 3 extents of F32 overflow'),
    "shape-part-of-a-byte": (one(dtype="F4", shape="[3]", offsets="[0,2]", data=bytes(2)), 'tensor "w": its 1 extents of F4 overflow or do not fill whole bytes'),
    "shape-too-small": (one(shape="[1]"), 'tensor "w": data_offsets span 8 bytes but its shape and dtype F32 need 4'),
    "shape-too-large": (one(shape="[3]"), 'tensor "w": data_offsets span 8 bytes but its shape and dtype F32 need 12'),
    "shape-empty-with-data": (one(shape="[0]"), 'tensor "w": data_offsets span 8 bytes but its shape and dtype F32 need 0'),
    "shape-scalar-with-too-much": (one(shape="[]"), 'tensor "w": data_offsets span 8 bytes but its shape and dtype F32 need 4'),
    # Offsets.
    "offsets-reversed": (one(offsets="[8,0]"), 'tensor "w": data_offsets [8, 0] end before they begin'),
    "offsets-one": (one(offsets="[8]"), 'tensor "w": expected \',\''),
    "offsets-three": (one(offsets="[0,8,8]"), 'tensor "w": expected \',\' or \']\''),
    "offsets-empty": (one(offsets="[]"), 'tensor "w": expected a non-negative integer'),
    "offsets-negative": (one(offsets="[-8,0]"), 'tensor "w": a negative number'),
    "offsets-exponent": (one(offsets="[0,8E0]"), 'tensor "w": a number with a fraction or an exponent'),
    "offsets-beyond-2-to-63": (one(offsets="[0,9223372036854775808]"), 'tensor "w": a number beyond 2^63 - 1'),
    "offsets-object": (one(offsets='{"0":8}'), 'tensor "w": expected \'[\''),
    "data-hole-at-start": (one(offsets="[4,12]", data=bytes(12)), 'tensor "w": begins at byte 4 of the data, leaving a hole'),
    "data-hole": (two(second="[12,20]", data=bytes(20)), 'tensor "second": begins at byte 12 of the data, leaving a hole'),
    "data-overlap": (two(second="[4,12]", data=bytes(12)), 'tensor "second": begins at byte 4 of the data, overlapping'),
    "data-same-range": (two(second="[0,8]", data=bytes(8)), 'tensor "second": begins at byte 0 of the data, overlapping'),
    "data-empty-within-another": (
        pack(f'{{"w":{entry()},"e":{entry(shape="[0]", offsets="[4,4]")}}}', bytes(8)),
        'tensor "e": begins at byte 4 of the data, overlapping'),
    "data-empty-beyond-end": (
        pack(f'{{"w":{entry()},"e":{entry(shape="[0]", offsets="[12,12]")}}}', bytes(8)),
        'tensor "e": begins at byte 12 of the data, leaving a hole'),
    "data-cut-short": (one(data=bytes(7)), 'tensor "w": ends at byte 8 of the data, of which the file has only 7'),
    "data-missing": (one(data=b""), 'tensor "w": ends at byte 8 of the data, of which the file has only 0'),
    "data-trailing": (one(data=bytes(9)), '1 trailing bytes after the last tensor, "w"'),
    "data-trailing-without-tensors": (pack("{}", bytes(1)), "1 trailing bytes"),
    "data-huge-tensor": (
        one(dtype="U8", shape="[9223372036854775807]", offsets="[0,9223372036854775807]"),
        'tensor "w": ends at byte 9223372036854775807 of the data, of which the file has only 8'),
    "data-many-over-one-range": (
        pack("{" + ",".join(f'"t{i}":{entry()}' for i in range(50)) + "}", bytes(8)),
        'tensor "t1": begins at byte 0 of the data, overlapping'),
}

DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


def all_dtypes():
    header, end = {}, 0
    for name, bits in DTYPE_BITS.items():
        header[name] = {"dtype": name, "shape": [4, 2], "data_offsets": [end, end + bits]}
        end += bits
    return pack(json.dumps(header), bytes(range(256))[: end % 256] + bytes(end - end % 256))


GOOD = {
    "no-tensors": pack("{}"),
    "no-tensors-padded": pack("{}" + " " * 54),
    "metadata-only": pack('{"__metadata__":{"format":"pt"}}'),
    "metadata-empty": metadata("{}"),
    "one": one(data=struct.pack("<2f", 1.5, -2.0)),
    "one-padded": pack(f'{{"w":{entry()}}}' + " " * 13, bytes(8)),
    "white-space": pack('{ "w"\t:\n{ "dtype" : "F32" ,\r"shape" : [ 2 ] , "data_offsets":[ 0 , 8 ] } } ', bytes(8)),
    "fields-in-another-order": raw_entry('{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}'),
    "order-reversed": two(first="[8,16]", second="[0,8]"),
    "scalar": one(shape="[]", offsets="[0,4]", data=bytes(4)),
    "empty-tensors": pack(
        f'{{"e":{entry(shape="[0]", offsets="[8,8]")},"w":{entry()},'
        f'"d":{entry(shape="[3,0,5]", offsets="[0,0]")},"c":{entry(shape="[0]", offsets="[0,0]")}}}', bytes(8)),
    "empty-of-large-extent": one(shape="[0,1152921504606846975]", offsets="[0,0]", data=b""),
    "many-dimensions": one(shape="[" + "1," * 99 + "2]"),
    "all-dtypes": all_dtypes(),
    "names-escaped": pack(
        '{"\\"\\\\\\/\\b\\f\\n\\r\\t":' + entry(offsets="[0,8]") +
        ',"\\u00e9\\u20ac\\ud83d\\ude00":' + entry(offsets="[8,16]") +
        ',"\u00e9":' + entry(offsets="[16,24]") + ',"":' + entry(offsets="[24,32]") + "}", bytes(32)),
    "metadata-after-tensors": pack(f'{{"w":{entry()},"__metadata__":{{"a":"1","b":""}}}}', bytes(8)),
}


def main():
    hostile, good = ROOT / "tests/data/hostile", ROOT / "tests/data/good"
    corpus = ROOT / "fuzz/corpus/safetensors"
    for directory in (hostile, good, corpus):
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.safetensors"):
            old.unlink()
    lines = []
    for name, (content, message) in sorted(HOSTILE.items()):
        (hostile / f"{name}.safetensors").write_bytes(content)
        (corpus / f"{name}.safetensors").write_bytes(content)
        lines.append(f"{name}.safetensors\t{message}\n")
    (hostile / "expected.txt").write_text("".join(lines), encoding="utf-8")
    for name, content in sorted(GOOD.items()):
        (good / f"{name}.safetensors").write_bytes(content)
        (corpus / f"good-{name}.safetensors").write_bytes(content)


if __name__ == "__main__":
    main()
