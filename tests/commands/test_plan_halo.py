"""`plan --partition`: refusals, and one partition from its report to tables and words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from horovod_sylvie.__main__ import main
from horovod_sylvie.commands.plan_halo import halo_tables, measured_formats, rows_of
from horovod_sylvie.planning.halo_forecast import (
    HaloForecast,
    HaloRows,
    RowFormat,
    forecast_epoch,
    forecast_exchange,
)
from horovod_sylvie.planning.link_model import model_of_link

SLOW = ["--rate", "1mbit", "--hidden", "32,16"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("plan") / "parts")
    source = "synthetic:nodes=300,degree=6,features=24"
    assert main(["partition", source, folder, "--parts", "3"]) == 0
    return folder


def change_report(parts: str, folder: Path, **changes: object) -> str:
    """Copy a header with another report."""
    header = json.loads((Path(parts) / "partition.json").read_text())
    header["report"] |= changes
    (folder / "partition.json").write_text(json.dumps(header))
    return str(folder)


def test_slow_link_is_told_in_bytes_and_milliseconds(
    parts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--partition", parts, *SLOW]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"halo exchanges of 3 ranks, {parts}"
    assert lines[1].startswith("once: features, 24 wide, 32 bits: ")
    labels = [line.split("  ")[0] for line in lines]
    exchanges = [
        "layer 1 forward, 32 wide",
        "layer 1 backward, 32 wide",
        "layer 2 forward, 16 wide",
        "layer 2 backward, 16 wide",
        "all",
    ]
    assert labels[3:9] == ["MB per epoch, all ranks together", *exchanges]
    assert labels[10:] == ["ms per epoch: encode, send, decode", *exchanges]
    assert lines[3].endswith("32 bits   16 bits    8 bits    4 bits    2 bits     1 bit")
    assert "does not pay" not in lines[-1]


def test_json_agrees_with_the_report_of_the_partition(
    parts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--partition", parts, *SLOW, "--features", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ranks = json.loads((Path(parts) / "partition.json").read_text())["report"]["ranks"]
    rows = sum(entry["num_boundary_rows"] for entry in ranks)
    assert found["features"]["width"] == 100
    assert found["features"]["nbytes"] == (rows + 6) * 400
    names = [each["name"] for each in found["epochs"]]
    assert names == ["32 bits", "16 bits", "8 bits", "4 bits", "2 bits", "1 bit"]
    assert found["epochs"][0]["nbytes"] == 2 * (rows + 6) * (128 + 64)
    # 8 and 6 bytes a row, 4 and 6 header rows for each message
    assert found["epochs"][-1]["nbytes"] == 2 * ((rows + 24) * 8 + (rows + 36) * 6)
    last = found["epochs"][-1]["exchanges"][-1]
    assert (last["layer"], last["direction"]) == (2, "backward")
    seconds = sum(each["link_s"] + each["codec_s"] for each in found["epochs"][-1]["exchanges"])
    assert found["epochs"][-1]["seconds"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected --hidden with --partition: the widths of what each layer after the first"),
        (["--hidden", "0"], "expected numbers from 1, with commas, for --hidden, got '0'"),
        (["--hidden", "8", "--features", "1,2"], "expected one number for --features, got '1,2'"),
        (["--hidden", "8", "--features", "x"], "expected numbers from 1, with commas, for --feat"),
        (["--hidden", "8", "--ranks", "4"], "--ranks goes with FACTORY. Leave it out."),
        (["--hidden", "8", "--min-density", "0.1"], "--min-density goes with FACTORY."),
        (["--hidden", "8", "--max-density", "0.1"], "--max-density goes with FACTORY."),
        (["--hidden", "8", "--steps", "3"], "--steps goes with FACTORY. Leave it out."),
        (["--hidden", "8", "--rate", "fast"], "expected a rate such as 10gbit"),
    ],
)
def test_wrong_argument_says_what_was_expected(
    parts: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--partition", parts, "--rate", "1gbit", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_what_is_no_partition_of_several_parts_is_refused(
    parts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--partition", str(tmp_path), *SLOW]) == 1
    assert "expected a partition directory for --partition, got" in capsys.readouterr().err
    single = str(tmp_path / "single")
    assert main(["partition", "synthetic:nodes=50,degree=4", single, "--parts", "1"]) == 0
    assert main(["plan", "--partition", single, *SLOW]) == 1
    assert "at least 2 parts for --partition" in capsys.readouterr().err
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "partition.json").write_text("{")
    assert main(["plan", "--partition", str(damaged), *SLOW]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        [],
        [{"num_halo": 1}] * 3,
        [{"num_halo": "x", "num_boundary_rows": 1}] * 3,
        [{"num_halo": 1, "num_boundary_rows": 2}] * 3,
        [{"num_halo": -1, "num_boundary_rows": -1}] * 3,
    ],
)
def test_changed_report_is_refused(
    parts: str, tmp_path: Path, ranks: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--partition", change_report(parts, tmp_path, ranks=ranks), *SLOW]) == 1
    assert "expected the rows of 3 ranks in the report of" in capsys.readouterr().err


def test_rows_are_those_of_the_report() -> None:
    ranks = [
        {"num_boundary_rows": 7, "num_halo": 5, "more": 1},
        {"num_boundary_rows": 5, "num_halo": 7},
    ]
    header = {"num_parts": 2, "report": {"ranks": ranks}}
    assert rows_of(header, "parts") == HaloRows((7, 5), (5, 7))


def test_speeds_of_all_formats_are_measured() -> None:
    formats = measured_formats(8)
    assert [each.row_bytes(9) for each in formats] == [36, 18, 13, 9, 7, 6]
    assert [each.header_rows(each.row_bytes(9)) for each in formats] == [1, 2, 3, 4, 5, 6]
    assert all(0 < each.encode_s_per_element < 1e-3 for each in formats)
    assert all(0 < each.decode_s_per_element < 1e-3 for each in formats)


def tables(encode_s: dict[str, float]) -> list[str]:
    """Lay out formats that take so long to encode an element, on a link of 1 us per byte."""
    rows, link = HaloRows((100, 100), (100, 100)), model_of_link(2, 8e6, 0.0)
    sizes = {"32 bits": 4.0, "4 bits": 0.5, "1 bit": 0.125}
    formats = [
        RowFormat(name, lambda width, n=size: int(width * n), lambda _: 1, encode_s[name])  # type: ignore[misc]
        for name, size in sizes.items()
    ]
    forecasts: list[HaloForecast] = [forecast_epoch(rows, [16], each, link) for each in formats]
    features = forecast_exchange(rows, 0, "features", 8, formats[0], link)
    return halo_tables(2, "parts", features, forecasts).splitlines()


def test_tables_show_bytes_and_milliseconds_of_each_exchange() -> None:
    lines = tables({"32 bits": 0.0, "4 bits": 1e-6, "1 bit": 2e-6})
    assert lines[1] == "once: features, 8 wide, 32 bits: 0.01 MB, 3.2 ms"
    # 202 rows of 64, 8 and 2 bytes; 101 of them on the link, 1600 elements encoded
    assert lines[3:7] == [
        "MB per epoch, all ranks together       32 bits    4 bits     1 bit",
        "layer 1 forward, 16 wide                  0.01      0.00      0.00",
        "layer 1 backward, 16 wide                 0.01      0.00      0.00",
        "all                                       0.03      0.00      0.00",
    ]
    assert lines[8:] == [
        "ms per epoch: encode, send, decode     32 bits    4 bits     1 bit",
        "layer 1 forward, 16 wide                  6.46      2.41      3.40",
        "layer 1 backward, 16 wide                 6.46      2.41      3.40",
        "all                                      12.93      4.82      6.80",
    ]


def test_words_say_where_one_bit_does_not_pay_and_what_does() -> None:
    words = tables({"32 bits": 0.0, "4 bits": 1e-6, "1 bit": 1e-5})[-1]
    assert words == (
        "one bit does not pay on this link: its exchanges take 32.4 ms per epoch, those in full "
        "precision 12.9. Use hvs.Bits(4)."
    )
    assert tables({"32 bits": 0.0, "4 bits": 1e-5, "1 bit": 1e-5})[-1].endswith(
        "Use hvs.FullPrecision()."
    )
