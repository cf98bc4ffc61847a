"""muonium orthogonalize: which files it takes and refuses, and what it computes."""

import json
import os
import re
import struct
import subprocess
import tempfile

import numpy as np
import pytest

from muonium_command import MUONIUM, run

SEED = int(os.environ.get("MUONIUM_TEST_SEED", "20240607"))


@pytest.fixture
def random():
    print(f"MUONIUM_TEST_SEED={SEED}")
    return np.random.default_rng(SEED)


def reference(array, table, scale=True):
    """The iteration in float64, on the last two axes."""
    x = array.astype(np.float64)
    tall = x.shape[-2] > x.shape[-1]
    x = np.swapaxes(x, -1, -2) if tall else x
    if scale:
        x = x / np.sqrt((x * x).sum((-1, -2), keepdims=True))
    for a, b, c in table:
        gram = x @ np.swapaxes(x, -1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return np.swapaxes(x, -1, -2) if tall else x


# ---- files ----


def npy(descr="<f4", order="False", shape="(2, 3)", version=(1, 0), data=b"\0" * 24, header=None):
    """The bytes of a .npy file, right or wrong."""
    if header is None:
        header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text = header.encode("latin1")
    width = 2 if version[0] == 1 else 4
    text += b" " * (-(8 + width + len(text) + 1) % 64) + b"\n"
    length = struct.pack("<H" if width == 2 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def refuse(tmp_path, content, message="", arguments=(), code=1):
    """A file with this content is an error, and nothing is written."""
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    source.write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    out, error = run("orthogonalize", source, target, *arguments, code=code)
    assert out == "" and message in error, error
    assert sorted(os.listdir(tmp_path)) == before and source.read_bytes() == content


MALFORMED = {
    "empty": (b"", "not a .npy file"),
    "magic": (b"\x93NUMPZ" + npy()[6:], "not a .npy file"),
    "version 4": (npy(version=(4, 0)), "format version 4.0"),
    "version 0": (npy(version=(0, 0)), "format version 0.0"),
    "version 1.1": (npy(version=(1, 1)), "format version 1.1"),
    "big-endian": (npy(">f4"), "big-endian"),
    "object": (npy("|O"), "Python objects"),
    "integers": (npy("<i4"), "descr is '<i4'"),
    "complex": (npy("<c8"), "descr is '<c8'"),
    "long double": (npy("<f16"), "descr is '<f16'"),
    "bool": (npy("|b1"), "descr is '|b1'"),
    "empty descr": (npy(""), "descr is ''"),
    "control characters": (npy("\x1b[31m\0"), "descr is '?[31m?'"),
    "structure": (
        npy(header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
        "structures",
    ),
    "descr no string": (npy(header="{'descr': 4, 'fortran_order': False, 'shape': ()}"), "descr"),
    "huge header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100, "truncated"),
    "huge shape": (npy(shape="(1000000000, 1000000000)"), "truncated"),
    "overflowing product": (npy(shape=f"({2**62}, 8)"), "more elements"),
    "overflowing bytes": (npy(shape=f"({2**62}, 1)"), "more elements"),
    "overflowing dimension": (npy(shape=f"({2**70}, 1)"), "dimension is too large"),
    "negative dimension": (npy(shape="(-2, 3)"), "expected a dimension"),
    "fraction": (npy(shape="(2.0, 3)"), "in shape"),
    "leading zero": (npy(shape="(02, 3)"), "expected a dimension"),
    "no tuple": (npy(shape="6"), "expected a tuple"),
    "list": (npy(shape="[2, 3]"), "expected a tuple"),
    "parenthesised": (npy(shape="(6)"), "not a tuple"),
    "two commas": (npy(shape="(2,, 3)"), "expected a dimension"),
    "only a comma": (npy(shape="(,)"), "expected a dimension"),
    "unclosed shape": (npy(shape="(2, 3"), "shape"),
    "too many dimensions": (npy(shape="(" + "1, " * 65 + ")"), "more than 64 dimensions"),
    "order": (npy(order="0"), "fortran_order"),
    "order lower case": (npy(order="false"), "fortran_order"),
    "unknown key": (
        npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}"),
        "unknown key 'x'",
    ),
    "double key": (
        npy(header="{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}"),
        "key 'descr' is there twice",
    ),
    "missing key": (npy(header="{'descr': '<f4', 'shape': (2, 3)}"), "'fortran_order' is missing"),
    "no dictionary": (npy(header="('descr', '<f4')"), "expected '{'"),
    "unclosed": (npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)"), "'}'"),
    "unclosed string": (npy(header="{'descr': '<f4"), "descr"),
    "no colon": (npy(header="{'descr' '<f4'}"), "':'"),
    "escape": (npy(header=r"{'d\x65scr': '<f4'}"), "expected a key"),
    "rest": (
        npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} 1"),
        "final newline",
    ),
    "no newline": (npy().replace(b"\n", b" "), "final newline"),
    "trailing byte": (npy(data=b"\0" * 25), "trailing bytes"),
    "no dimensions": (npy(shape="()", data=b"\0" * 4), "two dimensions"),
    "one dimension": (npy(shape="(6,)"), "two dimensions"),
    "no elements": (npy(shape="(0, 3)", data=b""), "no elements"),
    "empty batch": (npy(shape="(0, 3, 3)", data=b""), "no elements"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(tmp_path, name):
    refuse(tmp_path, *MALFORMED[name])


def test_truncated_at_every_byte(tmp_path):
    content = npy(data=np.ones(6, "<f4").tobytes())
    for length in range(len(content)):
        refuse(tmp_path, content[:length], "truncated" if length >= 6 else "not a .npy file")


def test_every_byte_of_the_header_flipped(tmp_path):
    """Each flip is refused or still means an array; none crashes."""
    content = bytearray(npy(data=np.arange(6, dtype="<f4").tobytes()))
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    for position in range(len(content) - 24):
        changed = bytearray(content)
        changed[position] ^= 0x04
        source.write_bytes(changed)
        done = subprocess.run(
            [str(MUONIUM), "orthogonalize", str(source), str(target)], capture_output=True
        )
        assert done.returncode in (0, 1)
        assert (done.returncode == 0) == target.exists()
        target.unlink(missing_ok=True)


def test_missing_directory_and_special_files(tmp_path):
    target = tmp_path / "out.npy"
    os.mkfifo(tmp_path / "pipe")
    for path, message in [
        (tmp_path / "none.npy", "No such file or directory"),
        (tmp_path, "it is a directory"),
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("", "No such file or directory"),
    ]:
        _, error = run("orthogonalize", path, target, code=1)
        assert f"cannot read '{path}': " in error and message in error
    assert not target.exists()


def test_outputs_that_cannot_be_written(tmp_path, random):
    source = tmp_path / "in.npy"
    np.save(source, random.standard_normal((3, 4)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "x.npy")
    before = sorted(os.listdir(tmp_path))
    for path, message in [
        (tmp_path / "folder", "it is a directory"),
        (tmp_path / "absent" / "out.npy", "No such file or directory"),
        (tmp_path / "dangling", "No such file or directory"),
        (source / "out.npy", "Not a directory"),
        ("/dev/null", "not a regular file"),
        ("", "No such file or directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ]:
        out, error = run("orthogonalize", source, path, code=1)
        assert out == "" and f"cannot write '{path}'" in error and message in error
    assert sorted(os.listdir(tmp_path)) == before


def test_read_only_directory(random):
    keywords = {}
    if os.geteuid() == 0:  # whom permissions do not stop
        if not all(parent.stat().st_mode & 0o001 for parent in MUONIUM.resolve().parents):
            pytest.skip("another user cannot reach the command")
        keywords = {"user": 65534, "group": 65534, "extra_groups": []}
    with tempfile.TemporaryDirectory() as folder:
        source, closed = os.path.join(folder, "in.npy"), os.path.join(folder, "closed")
        np.save(source, random.standard_normal((3, 4)))
        os.mkdir(closed)
        os.chmod(folder, 0o755)
        os.chmod(closed, 0o555)
        _, error = run("orthogonalize", source, closed + "/out.npy", code=1, **keywords)
        assert "Permission denied" in error and os.listdir(closed) == []


def test_full_disk_leaves_the_old_file(tmp_path, random):
    """A limit on the file size stands for the full disk."""
    source = tmp_path / "in.npy"
    np.save(source, random.standard_normal((64, 64)))
    before = source.read_bytes()
    command = f"ulimit -f 8; trap '' XFSZ; exec '{MUONIUM}' orthogonalize in.npy in.npy"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True)
    assert done.returncode == 1 and b"cannot write 'in.npy': File too large" in done.stderr
    assert source.read_bytes() == before and os.listdir(tmp_path) == ["in.npy"]


def test_output_equal_to_input_keeps_permissions_and_links(tmp_path, random):
    array = random.standard_normal((5, 3)).astype("f4")
    real, link, other = tmp_path / "real.npy", tmp_path / "link.npy", tmp_path / "other.npy"
    np.save(real, array)
    real.chmod(0o640)
    link.symlink_to("real.npy")
    run("orthogonalize", real, other)
    run("orthogonalize", link, link)
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert real.read_bytes() == other.read_bytes()
    assert np.abs(np.load(real)).max() > 0 and not np.array_equal(np.load(real), array)
    assert len(os.listdir(tmp_path)) == 3


def test_new_file_follows_the_umask(tmp_path, random):
    np.save(tmp_path / "in.npy", random.standard_normal((3, 4)))
    command = f"umask 027; exec '{MUONIUM}' orthogonalize in.npy out.npy"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out.npy").stat().st_mode & 0o777 == 0o640


def test_lost_report_is_a_failure(tmp_path, random):
    np.save(tmp_path / "in.npy", random.standard_normal((3, 4)))
    with open("/dev/full", "wb") as full:
        _, error = run(
            "orthogonalize", tmp_path / "in.npy", tmp_path / "out.npy", code=1, stdout=full
        )
    assert "No space left on device" in error


# ---- values ----


def orthogonalize(tmp_path, array, *arguments):
    """Through files; returns the result, as stored, and the report."""
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, array)
    out, _ = run("orthogonalize", source, target, "--json", *arguments)
    assert out and run("orthogonalize", source, tmp_path / "again.npy", *arguments)[0]
    assert target.read_bytes() == (tmp_path / "again.npy").read_bytes()
    result = np.load(target)
    assert result.dtype == array.dtype and result.shape == array.shape
    return result, json.loads(out)


SHAPES = [(4, 4), (3, 8), (8, 3), (1, 5), (5, 1), (48, 80), (3, 6, 4), (2, 3, 4, 7), (20, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_against_float64(tmp_path, random, dtype, order, shape):
    array = np.asarray(random.standard_normal(shape), dtype=dtype, order=order)
    precision = "f64" if dtype == "<f8" else "f32"
    result, report = orthogonalize(tmp_path, array, "--precision", precision, "--form", "quintic")
    assert np.isfortran(result) == np.isfortran(array)
    expected = reference(array, report["plan"]["coefficients"])
    working = np.finfo("f8" if dtype == "<f8" else "f4").eps
    # Five steps magnify a rounding error by at most the product of the slopes,
    # and small singular values by less than their own share.
    magnified = 64 * max(shape) * working
    tolerance = magnified + np.finfo(dtype).eps
    assert np.abs(result.astype("f8") - expected).max() <= tolerance
    assert report["shape"] == list(shape) and report["dtype"] == array.dtype.name
    assert len(report["certificates"]) == int(np.prod(shape[:-2]))
    leading = np.asarray(array, "f8")
    for certificate in report["certificates"]:
        index = tuple(certificate["index"])
        assert certificate["outcome"] == "orthogonalized"
        assert certificate["divisor"] == pytest.approx(np.linalg.norm(leading[index]), rel=1e-5)
        y = expected[index] if shape[-2] <= shape[-1] else expected[index].T
        distance = np.linalg.norm(np.eye(len(y)) - y @ y.T)
        assert distance == pytest.approx(certificate["orthogonality_error"], rel=1e-3, abs=1e-4)
        assert certificate["bound"] == certificate["orthogonality_error"]
        values = np.linalg.svd(y, compute_uv=False)
        # Squares are measured; 48 rows take more than 24 iterations to the very ends.
        few = len(y) <= 24
        ends = certificate["sigma_min"] ** 2, certificate["sigma_max"] ** 2
        assert values.min() ** 2 - 1e-4 <= ends[0] <= values.min() ** 2 + (1e-4 if few else 0.05)
        assert values.max() ** 2 + 1e-4 >= ends[1] >= values.max() ** 2 - (1e-4 if few else 0.05)


def test_polar_factor(tmp_path, random):
    """Enough steps give the polar factor of the singular value decomposition."""
    array = random.standard_normal((24, 40))
    result, report = orthogonalize(tmp_path, array, "--steps", 12, "--precision", "f64")
    u, _, v = np.linalg.svd(array, full_matrices=False)
    np.testing.assert_allclose(result, u @ v, atol=1e-12)
    assert report["certificates"][0]["bound"] < 1e-6


@pytest.mark.parametrize(
    "array, expected",
    [
        (
            "[[.2450,.1280,.0010,.4861],[.3499,.2341,.3737,.9310],"
            "[.9632,.9400,.5003,.1285],[.3585,.4744,.7334,.6123]]",
            "[[-.0493,.3418,-.5932,.5596],[.3052,-.4529,.1063,.7101],"
            "[.6898,.5104,.0184,-.3814],[-.4041,.2930,.7062,.2322]]",
        ),
        (
            "[[.83079288,.13086341],[.34745056,.05995961],[.02953721,.58638872],"
            "[.06437917,.68301915]]",
            "[[.8826,.1575],[.3692,.0714],[.0445,.6226],[.0836,.7259]]",
        ),
        ("[[.2499,.9105],[.2655,.8824]]", "[[-.4419,.6456],[.7282,.2970]]"),
    ],
)
def test_known_values(tmp_path, array, expected):
    options = ["-c", "original", "--eps-mode=add", "--eps=1e-7", "--precision=f64"]
    result, _ = orthogonalize(tmp_path, np.array(eval(array)), *options)
    np.testing.assert_allclose(result, np.array(eval(expected)), atol=6e-5)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_and_layouts_of_the_header(tmp_path, random, version):
    array = random.standard_normal((3, 4)).astype("<f4")
    expected, _ = orthogonalize(tmp_path, array)
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    headers = [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
        '{"shape":(3,4),"fortran_order":False,"descr":"<f4"}',
        "  { 'shape' : ( 3 , 4 , ) , 'descr' : '<f4' , 'fortran_order' : False , }",
    ]
    for header in headers:
        content = npy(header=header, version=version, data=array.tobytes())
        for shift in range(3):  # data at every alignment
            width = 2 if version[0] == 1 else 4
            length = int.from_bytes(content[8 : 8 + width], "little") + shift
            start = 8 + width
            shifted = content[:8] + length.to_bytes(width, "little") + b" " * shift + content[start:]
            source.write_bytes(shifted)
            run("orthogonalize", source, target)
            assert np.array_equal(np.load(target), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--normalize=schatten"],
        ["--normalize=spectral"],
        ["--normalize=aol"],
        ["--form=standard"],
        ["--form=gram"],
        ["--form=direct"],
        ["--form=direct", "--direct-set=P11w"],
        ["--precision=bf16"],
        ["--precision=f16"],
        ["--rounding=keller", "--precision=bf16"],
        ["--safety-factor=1.1"],
        ["--eps-mode=clamp", "--eps=1e-3"],
        ["--coefficients=cans"],
        ["--lower=1e-2", "--safety=0.05", "--cushion=0.1"],
    ],
    ids=lambda a: a[0],
)
def test_options_reach_the_library(tmp_path, random, arguments):
    array = random.standard_normal((16, 40)).astype("f4")
    result, report = orthogonalize(tmp_path, array, *arguments)
    values = np.linalg.svd(result.astype("f8"), compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.4
    form = [a.split("=")[1] for a in arguments if a.startswith("--form")]
    assert report["plan"]["form"] in (form or ["standard", "gram", "direct"])


@pytest.mark.parametrize("arguments", [["-c", "original"], ["--steps=7"], ["--lower=1e-2"]])
def test_direct_form_ignores_no_coefficients(tmp_path, arguments):
    np.save(tmp_path / "x.npy", np.eye(4, dtype="f4"))
    files = tmp_path / "x.npy", tmp_path / "y.npy"
    assert "would be ignored" in run("orthogonalize", *files, "--form=direct", *arguments, code=2)[1]


def test_no_normalisation(tmp_path, random):
    array = random.standard_normal((6, 9))
    array /= 2 * np.linalg.norm(array, 2)
    result, report = orthogonalize(tmp_path, array, "--normalize=none", "--precision=f64")
    expected = reference(array, report["plan"]["coefficients"], scale=False)
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_not_finite(tmp_path, random):
    array = random.standard_normal((3, 4, 5)).astype("f4")
    array[1, 2, 3] = np.inf
    np.save(tmp_path / "bad.npy", array)
    _, error = run("orthogonalize", tmp_path / "bad.npy", tmp_path / "out.npy", code=1)
    assert "inf" in error and not (tmp_path / "out.npy").exists()

    skipped, report = orthogonalize(tmp_path, array, "--nonfinite=skip")
    assert np.array_equal(skipped[1], array[1]) and not np.array_equal(skipped[0], array[0])
    outcomes = [c["outcome"] for c in report["certificates"]]
    assert outcomes == ["orthogonalized", "skipped", "orthogonalized"]

    filled, report = orthogonalize(tmp_path, array, "--nonfinite=propagate")
    assert np.isnan(filled[1]).all() and np.isfinite(filled[[0, 2]]).all()
    assert report["certificates"][1]["outcome"] == "propagated"


def test_zero_matrices_and_summary(tmp_path, random):
    array = random.standard_normal((5, 6, 3, 4)).astype("f4")
    array[2, 3] = 0
    result, report = orthogonalize(tmp_path, array)
    assert not result[2, 3].any()
    zero = [c["index"] for c in report["certificates"] if c["outcome"] == "zero"]
    assert zero == [[2, 3]]
    text, _ = run("orthogonalize", tmp_path / "in.npy", tmp_path / "out.npy")
    assert "30 matrices, 29 orthogonalized, 1 zero" in text and "the worst is" in text
    assert len(text.splitlines()) < 10


def test_index_in_fortran_order(tmp_path, random):
    array = np.asfortranarray(random.standard_normal((2, 3, 4, 5)))
    array[1, 2] = 0
    result, report = orthogonalize(tmp_path, array)
    assert not result[1, 2].any()
    zero = [c["index"] for c in report["certificates"] if c["outcome"] == "zero"]
    assert zero == [[1, 2]]


def test_report_for_people(tmp_path, random):
    np.save(tmp_path / "in.npy", np.asfortranarray(random.standard_normal((2, 12, 9))))
    text, _ = run("orthogonalize", tmp_path / "in.npy", tmp_path / "out.npy")
    assert "float64 (2, 12, 9), Fortran order" in text and "plan: " in text
    assert "certificate [0]: orthogonalized" in text and "certificate [1]: " in text
    expected = re.search(r"^expected singular values: (\S+) to (\S+), from those", text, re.M)
    measured = re.findall(r"measured singular values (\S+) to (\S+), \|Y Y\^T - I\| = (\S+)$",
                          text, re.M)
    for matrix, line in zip(np.load(tmp_path / "out.npy"), measured, strict=True):
        low, high, error = map(float, line)
        values = np.linalg.svd(matrix, compute_uv=False)
        # Three decimals are printed, three digits of the error.
        assert values.min() == pytest.approx(low, abs=1e-3)
        assert values.max() == pytest.approx(high, abs=1e-3)
        assert np.linalg.norm(values**2 - 1) == pytest.approx(error, rel=1e-2)
        assert float(expected[1]) - 1e-3 < low <= high < float(expected[2]) + 1e-3
    assert text.endswith(f"wrote {tmp_path / 'out.npy'}\n")


def test_report_of_the_polar_factor(tmp_path, random):
    np.save(tmp_path / "in.npy", random.standard_normal((12, 40)).astype("f4"))
    text, _ = run("orthogonalize", tmp_path / "in.npy", tmp_path / "out.npy", "--steps=8")
    assert re.search(r"expected singular values: within \S+ of 1, from", text)
    assert float(re.search(r"measured singular values within (\S+) of 1,", text)[1]) < 1e-5


def test_bad_library_options_are_usage_errors(tmp_path, random):
    content = npy(data=random.standard_normal(6).astype("<f4").tobytes())
    refuse(tmp_path, content, "lower", ["--lower=3"], code=2)
    refuse(tmp_path, content, "safety_factor", ["--safety-factor=0"], code=2)
    refuse(tmp_path, content, "eps", ["--eps=-1", "--eps-mode=add"], code=2)
