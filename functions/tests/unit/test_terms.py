"""The words of memories and of queries: what is found by what, and what holds for every text."""

import timeit
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metacortex.memory import BranchState, Metadata, Modality
from metacortex.terms import COUNTED, LONGEST, MOST_TERMS, memory_terms, query_terms, terms_about

ANY_TEXT = st.text()
WORDS = st.text(st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]) | st.sampled_from("-._/:@#+'"), max_size=80)


def terms(text: str) -> dict[str, int]:
    """The terms of a text of which nothing more is told."""
    return terms_about(text, ())


def found_by(query: str, text: str) -> bool:
    """Whether a memory holds every word that is counted of a query."""
    wanted = query_terms(query)
    return bool(wanted) and set(wanted) <= terms(text).keys()


# --- What is the same word ---


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("OWL", "the owl"),
        ("cafe", "Café"),
        ("Café", "cafe"),
        ("cafe\u0301", "CAFÉ"),
        ("strasse", "Straße"),
        ("istanbul", "İstanbul"),
        ("ISI", "ısı"),
        ("Lodz", "Łódź"),
        ("tromso", "Tromsø"),
        ("file", "ﬁle"),
        ("kelvin", "\u212aELVIN"),
        ("123", "１２３"),
        ("ΟΔΟΣ", "οδός"),
        ("ежик", "Ёжик"),
        ("שלום", "שָׁלוֹם"),
        ("محمد", "مُحَمَّد"),
        ("softhyphen", "soft\u00adhyphen"),
        ("owl", "\u202bow\u200dl\u200f"),
        ("мʼята", "м'ята"),
        ("ERR-42", "ERR\u201142"),
        ("O'Reilly", "O\u2019REILLY"),
    ],
)
def test_case_accents_and_what_shows_nothing_do_not_part_words(query: str, text: str) -> None:
    assert found_by(query, text)
    assert found_by(text, query)


FORMS = """
run runs running
order orders ordered ordering
number numbers numbered
apply applies applied applying
family families
movie movies
study studies studied studying
embed embeds embedded embedding embeddings
speed speeds
add adds added adding
diff diffs diffed diffing
stop stops stopped stopping
commit commits committed committing
control controls controlled controlling
cancel cancels canceled cancelled cancelling
call calls called calling
cache caches cached caching
service services
box boxes boxed
class classes
process processes processed processing
address addresses addressed
status statuses
key keys keyed
query queries queried querying
owner owners owner's owners’
URL URLs url urls
ID IDs
PDF PDFs
"""


@pytest.mark.parametrize("forms", FORMS.strip().splitlines())
def test_the_forms_of_an_english_word_are_one_term(forms: str) -> None:
    assert len({tuple(query_terms(form))[:1] for form in forms.split()}) == 1


@pytest.mark.parametrize(
    "words",
    [
        "summer sum",
        "letter let",
        "number numb",
        "order or ore",
        "early ear",
        "offer of off",
        "string str",
        "wing win",
        "server serve",
        "family fame",
        "bass bas",
        "running ran",
        "she'll shell",
        "new old",
    ],
)
def test_different_words_stay_apart(words: str) -> None:
    found = [query_terms(word) for word in words.split()]
    assert len(set(found)) == len(found)


def test_words_that_every_text_holds_are_no_terms_however_they_are_written() -> None:
    assert terms("I don't think THAT she'll be there, isn't it? You can’t, we've been; what's this") == {"think": 1}


@pytest.mark.parametrize(("query", "text"), [("été", "l'été"), ("acqua", "dell’acqua"), ("reilly", "O'Reilly's")])
def test_a_word_is_found_behind_an_apostrophe(query: str, text: str) -> None:
    assert found_by(query, text)


def test_the_terms_of_a_text_are_counted() -> None:
    assert terms("Owls eat mice; an owl eats. OWL!") == {"owl": 3, "eat": 2, "mic": 1}


# --- Numbers and identifiers ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ERR_CONN_RESET-42", ["err_conn_reset-42", "err", "conn", "reset", "42"]),
        ("v1.2.3", ["v1.2.3", "1.2.3"]),
        ("2026-03-01", ["2026-03-01", "2026", "03", "01"]),
        ("getUserName", ["getusernam", "get", "user", "nam"]),
        ("XMLHttpRequest", ["xmlhttprequest", "xml", "http", "request"]),
        (
            "https://example.org/docs/owls.md?page=7",
            ["http", "example.org/docs/owls.md", "example.org", "owls.md", "7"],
        ),
        ("user@example.org", ["user@example.org", "user", "example.org"]),
        ("owner/repo#42", ["owner/repo#42", "owner", "repo#42", "repo", "42"]),
        ("/usr/local/lib", ["usr/local/lib", "usr", "local", "lib"]),
        ("localhost:8080", ["localhost:8080", "localhost", "8080"]),
        ("__init__.py", ["init", "py"]),
        ("iPhone15Pro", ["iphone15pro", "phon", "15", "pro"]),
        ("10.0.0.1", ["10.0.0.1", "10"]),
        ("+49-170-1234567", ["49-170-1234567", "49", "170", "1234567"]),
        ("C++", ["c++"]),
        ("C#", ["c#"]),
        ("#42", ["42"]),
    ],
)
def test_identifiers_are_kept_whole_and_in_parts(text: str, expected: list[str]) -> None:
    assert [term for term in terms(text) if term in expected] == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("getusername", "call getUserName() first"),
        ("user name", "call getUserName() first"),
        ("YouTube", "a youtube video"),
        ("1.2.3", "since v1.2.3"),
        ("v3.12", "Python 3.12"),
        ("err_conn_reset-42", "It said ERR_CONN_RESET-42."),
        ("example.org", "see https://example.org/docs"),
        ("owls.md", "in docs/birds/owls.md:12"),
        ("c++", "Written in C++."),
    ],
)
def test_an_identifier_is_found_as_it_is_asked_for(query: str, text: str) -> None:
    assert set(query_terms(query)[:2]) & terms(text).keys()


@pytest.mark.parametrize(("query", "text"), [("C", "C++ and C#"), ("ERR-4", "ERR-42"), ("v1.2.3", "v1.2.34")])
def test_an_identifier_is_not_found_by_a_piece_of_one_of_its_parts(query: str, text: str) -> None:
    assert not found_by(query, text)


def test_single_letters_and_digits_count_by_themselves_but_not_as_parts() -> None:
    assert terms("plan B, step 4") == {"plan": 1, "b": 1, "step": 1, "4": 1}
    assert terms("a-b-4") == {"a-b-4": 1}


# --- Other scripts ---


@pytest.mark.parametrize(("query", "text"), [("雾凇拼音", "雾凇 拼音"), ("雾凇 拼音", "雾凇拼音")])
def test_chinese_words_are_found_written_together_or_apart(query: str, text: str) -> None:
    assert set(query_terms(query)) & terms(text).keys() == {"雾凇", "拼音"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("雾凇拼音", ["雾凇", "凇拼", "拼音"]),
        ("雾", ["雾"]),
        ("佐々木さん", ["佐々", "々木", "木さ", "さん"]),
        ("ｶﾀｶﾅ", ["カタ", "タカ", "カナ"]),
        ("カタ・カナ、です。", ["カタ", "カナ", "です"]),
        ("한국어를", ["한국", "국어", "어를"]),
        ("ไทย", ["ไท", "ทย"]),
        ("雾凇abc", ["雾凇", "abc"]),
        ("abc雾凇42", ["abc", "雾凇", "42"]),
        ("用Python3写", ["用", "python3", "python", "写"]),
        ("हिन्दी है।", ["हिन्दी", "है"]),
        ("𠮷野家", ["𠮷野", "野家"]),
    ],
)
def test_scripts_without_spaces_become_pairs_and_a_change_of_script_parts_words(text: str, expected: list[str]) -> None:
    assert [term for term in terms(text) if len(term) > 1 or term in expected] == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [("猫", "我的猫很可爱"), ("猫", "猫"), ("え", "きれいなえです"), ("물", "물을 마셔요"), ("𠮷", "𠮷野家")],
)
def test_a_single_character_that_may_be_a_word_finds_the_text_around_it(query: str, text: str) -> None:
    assert found_by(query, text)


@pytest.mark.parametrize("text", ["ไทย", "မြန်မာ", "ខ្មែរ", "हिन्दी"])
def test_a_letter_is_no_term(text: str) -> None:
    assert all(len(term) > 1 for term in terms(text))


def test_a_longer_query_asks_for_no_single_characters() -> None:
    assert query_terms("我的猫") == ("我的", "的猫")


def test_single_characters_are_counted_wherever_they_stand() -> None:
    assert terms("猫和猫。猫") == {"猫和": 1, "和猫": 1, "猫": 3, "和": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "🦉🦉 👨‍👩‍👧 ❤️",
        "!?… — «»",
        "^_^ -_- _/_ __ #_# _++",
        "。、・「」！",
        "। ၊ ။",
        "\u0301" * 10_000,
        "\0\x07\x1b",
    ],
)
def test_emoji_and_punctuation_are_no_terms(text: str) -> None:
    assert terms(text) == {}
    assert query_terms(text) == ()


PUNCTUATION = st.text(st.characters(categories=["P", "Z", "Cc", "Cf", "Cs"]), max_size=20)


@given(PUNCTUATION)
@example("_#")
@example("_-_")
@example("\ud800")
def test_no_punctuation_is_a_term(text: str) -> None:
    assert terms(text) == {}


# --- Bounds ---


def test_of_too_many_terms_identifiers_are_kept_first_and_then_the_first() -> None:
    words = [f"{first}{second}q" for first in "bcdfghjklm" for second in "abcdefghijklmnopqrstuvwxyz" * 2]
    text = " ".join(
        [*dict.fromkeys(words), *(f"x{second}{third}w" for second in "abc" for third in "abcdefghijklmnopqrstuvwxyz")]
    )
    assert len(terms(text)) == MOST_TERMS
    kept = terms(f"{text} ERR-42 7.5")
    assert len(kept) == MOST_TERMS
    assert {"err-42", "42", "7.5"} <= kept.keys()
    assert "baq" in kept
    assert "xczw" not in kept


def test_many_identifiers_leave_half_of_the_room_to_words() -> None:
    numbers = " ".join(map(str, range(1_000, 1_400)))
    kept = terms(f"{numbers} {WORDY}")
    assert [term for term in kept if term.isdigit()] == [str(number) for number in range(1_000, 1_150)]
    assert len(kept) == MOST_TERMS
    assert terms(f"{numbers} The owl hunts mice.").keys() >= {"owl", "hunt", "mic", "1000", "1296"}


def test_single_characters_come_after_all_other_words() -> None:
    han = "".join(chr(0x4E00 + i) for i in range(250))
    kept = terms(f"{han} owl")
    assert len(kept) == MOST_TERMS
    assert {"owl", han[:2], han[-2:], han[0]} <= kept.keys()
    assert han[-1] not in kept


KNOWN = Metadata(
    topic="Falcon project",
    branch_state=BranchState.ACTIVE,
    modality=Modality.TEXT,
    created_at=1_700_000_000_000,
    artifact_refs=("notes/launchpad.md",),
)
ABOUT = terms("Falcon project, 14 November 2023, notes/launchpad.md").keys()
WORDY = " ".join(f"{one}{two}{three}q" for one in "bcdfg" for two in "aiou" for three in "bcdfghjklmnprstvwxz")


@pytest.mark.parametrize("text", [WORDY, " ".join(map(str, range(5_000, 6_000))), "雾凇拼音" * 90_000])
def test_no_text_drives_out_the_topic_the_day_and_the_references_of_its_memory(text: str) -> None:
    kept = memory_terms(text, KNOWN)
    assert kept.keys() >= ABOUT
    assert len(kept) == min(MOST_TERMS, len(ABOUT) + len(terms(text)))


def test_fifty_long_references_leave_half_of_the_room_to_the_text() -> None:
    references = tuple(f"{'/'.join(f'r{i}x{j}' for j in range(100))}" for i in range(50))
    kept = memory_terms(WORDY, replace(KNOWN, artifact_refs=references))
    assert len(kept) == MOST_TERMS
    assert {"falcon", "november"} <= kept.keys()
    assert len(kept.keys() & terms(WORDY).keys()) == MOST_TERMS // 2


def test_many_references_take_the_room_that_a_short_text_leaves() -> None:
    references = tuple(f"r{i}x" for i in range(400))
    kept = memory_terms("The owl hunts mice.", replace(KNOWN, artifact_refs=references))
    assert len(kept) == MOST_TERMS
    assert kept.keys() >= {"falcon", "november", "owl", "hunt", "mic", "r90x"}


def test_what_stands_in_a_text_and_in_its_topic_counts_for_both() -> None:
    assert memory_terms("The falcon", KNOWN)["falcon"] == 2


def test_the_number_of_identifiers_is_bounded_too() -> None:
    assert list(terms(" ".join(str(number) for number in range(10_000)))) == [
        str(number) for number in range(MOST_TERMS)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 400_000,
        "ed" * 200_000,
        "a-" * 200_000,
        "aB" * 200_000,
        "a1" * 200_000,
        "a'" * 200_000,
        "_" * 400_000,
        "a" + "_" * 400_000,
        "雾" * 133_333,
        "word " * 80_000,
        "1." * 200_000,
        "\u0d02" * 133_333,
        "e\u0301" * 130_000,
    ],
)
def test_no_text_is_too_long_or_too_odd(text: str) -> None:
    found = terms(text)
    assert len(found) <= MOST_TERMS
    assert all(len(term) <= LONGEST for term in found)


def test_a_long_identifier_is_found_by_how_it_begins() -> None:
    digest = "0f" * 64
    assert found_by(digest, f"sha512 {digest}")


# --- Queries ---


def test_of_a_query_the_identifiers_and_the_longest_words_are_counted() -> None:
    query = "which owls lived near the old barn in winter when error E-1042 came up and somebody repaired everything"
    counted = query_terms(query)
    assert counted == ("e-1042", "1042", "somebody", "everyth", "winter", "repair", "error", "near")
    assert len(counted) == COUNTED


def test_a_word_is_counted_once() -> None:
    assert query_terms("owl Owls OWL") == ("owl",)


@pytest.mark.parametrize(
    ("query", "expected"), [("?!", ()), ("who am I", ()), ("x", ("x",)), ("雾", ("雾",)), ("A", ())]
)
def test_small_queries(query: str, expected: tuple[str, ...]) -> None:
    assert query_terms(query) == expected


def test_a_query_of_five_thousand_words_counts_eight() -> None:
    query = " ".join(f"{number}word" for number in range(5_000))
    assert len(query_terms(query)) == COUNTED


# --- What holds for every text ---


@given(ANY_TEXT)
def test_every_term_can_be_a_key_of_a_map_in_firestore(text: str) -> None:
    for term, often in terms(text).items():
        assert 0 < len(term) <= LONGEST
        assert len(term.encode()) <= 1_500
        assert not (term.startswith("__") and term.endswith("__"))
        assert not set(term) & set("`\\\0 \n'")
        assert any(unicodedata.category(character)[0] in "LNMC" for character in term)
        assert often >= 1


@given(ANY_TEXT | WORDS)
def test_every_word_of_a_query_is_among_the_words_of_its_text(text: str) -> None:
    kept = terms(text)
    assert len(kept) <= MOST_TERMS
    assert set(query_terms(text)) <= kept.keys()


@given(WORDS)
def test_a_word_is_the_same_in_any_case(word: str) -> None:
    # The parts of a name depend on its capitals; the name as a whole does not.
    upper, lower = query_terms(word.upper()), terms(word.lower())
    assert not upper or not lower or set(upper) & lower.keys()


@given(st.lists(st.sampled_from([form for line in FORMS.lower().splitlines() for form in line.split()]), max_size=8))
def test_terms_are_terms_of_themselves(words: list[str]) -> None:
    once = terms(" ".join(words))
    assert terms(" ".join(once)).keys() == once.keys()


@given(st.text("abcdeginorstuyzäåçéèêğıłñøöőřßşúüýžαήσς", min_size=4, max_size=20))
def test_capitals_of_plain_words_change_nothing(word: str) -> None:
    assert terms(word) == terms(word.upper()) == terms(word.title())


@given(ANY_TEXT, ANY_TEXT)
def test_a_text_between_others_keeps_its_terms(one: str, other: str) -> None:
    together = terms(f"{one}\n{other}")
    assert len(together) == MOST_TERMS or together.keys() == terms(one).keys() | terms(other).keys()


# --- Texts of any length ---


def test_marks_that_pile_up_take_no_longer_than_a_text() -> None:
    seconds = {
        text: min(timeit.repeat(lambda text=text: terms(text), number=1, repeat=3))
        for text in ("owls " * 20_000, "a" + "\u0301\u0316" * 50_000)
    }
    plain, piled_up = seconds.values()
    assert piled_up < 10 * plain


@pytest.mark.parametrize("separator", [" ", "\n", "。", ", "])
def test_words_are_found_whole_wherever_they_stand_in_a_long_text(separator: str) -> None:
    words = [f"{number:06}" for number in range(3_000)]
    found = terms(separator.join(words))
    assert list(found.items()) == [(word, 1) for word in words[:MOST_TERMS]]
    counted = terms(separator.join(["ERR_1042"] * 3_000))
    assert counted["err_1042"] == 3_000


def test_a_phrase_that_is_one_sign_is_found_by_its_words() -> None:
    assert found_by("عليه", "\ufdfa")
