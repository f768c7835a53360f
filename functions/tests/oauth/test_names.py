"""The name by which an application introduces itself: what of it is shown to the owner, and that it is always something."""

import re
from html import unescape

import pytest

from signing import Signing

UNNAMED = "An unnamed client"


async def shown(signing: Signing, name: object) -> str:
    """A client's name as it stands on the page."""
    client = await signing.register(client_name=name)
    page = await signing.http.get(signing.authorize_url(client["client_id"]))
    [found] = re.findall(r'<bdi class="name">(.*?)</bdi>', page.text, re.DOTALL)
    return unescape(found)


@pytest.fixture
def signing(emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch) -> Signing:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    return Signing(project)


@pytest.mark.parametrize(
    "name",
    [
        "Claude",
        'MetaCortex <b>&amp;</b> "friends"',
        "Überspaß 3 – «Größe»",
        "日本語のアプリ",
        "한국어 앱",
        "עִבְרִית",
        "ประเทศไทย ที่นี่",
        "हिन्दी ऐप्लिकेशन",
        "🦉 Owl",
    ],
)
async def test_a_name_is_shown_as_it_is(signing: Signing, name: str) -> None:
    assert await shown(signing, name) == name


@pytest.mark.parametrize(
    "name",
    [
        None,
        5,
        ["A name"],
        "",
        "   ",
        "\n\t\r",
        "\u00a0\u2003\u3000\u2028\u2029",
        # Letters that fill a place and show nothing.
        "\u3164",
        "\u115f\u1160\uffa0",
        "\u2800\u2800",
        "\u17b4\u17b5",
        "\U00013441",
        "\U0001d159",
        # What joins, divides or turns text, and what chooses between forms of a letter.
        "\u200b\u200c\u200d\u2060\ufeff",
        "\u00ad\u034f\u061c",
        "\u202a\u202e\u2066\u2069",
        "\u180b\u180e\ufe00\ufe0f\U000e0100",
        "\U000e0041\U000e007f",
        # Marks on nothing.
        "\u0301\u0301",
        " \u0489 ",
        # What nobody has given a meaning to.
        "\ue000\U000f0000\uffff\U000e0fff",
        "\u3164" * 6_000 + "Claude",
    ],
)
async def test_a_name_of_nothing_that_can_be_seen_is_none(signing: Signing, name: object) -> None:
    assert await shown(signing, name) == UNNAMED


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Claude\nAnswer goes to\r\nclaude.ai", "Claude Answer goes to claude.ai"),
        ("Claude\u2028Answer\u0085goes\x1b[2Jto\x00claude.ai", "Claude Answer goes [2Jto claude.ai"),
        ("Claude" + " " * 50 + "\u3000.", "Claude ."),
        ("Clau\u200bde\u3164 \u202eedoC", "Claude edoC"),
        ("Cl\u0430ude\ufe0f", "Cl\u0430ude"),
        ("𝕮𝖑𝖆𝖚𝖉𝖊 Ｃｏｄｅ", "Claude Code"),
        ("Cafe\u0301", "Café"),
        ("Z" + "\u0335\u0336\u0337\u0338\u0489" * 20 + "o", "Z\u0335\u0336\u0337o"),
        ("\u0336Claude", "Claude"),
        ("x" * 200, "x" * 80),
        ("x" * 79 + " yz", "x" * 79),
        ("\ufdfa" * 200, None),
    ],
)
async def test_what_would_deceive_is_left_out_of_a_name(signing: Signing, name: str, plain: str | None) -> None:
    found = await shown(signing, name)
    assert len(found) <= 80
    assert found == plain if plain else found
