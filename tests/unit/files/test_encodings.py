from __future__ import annotations

import codecs

import pytest

from wieldy.files.detection import Encoding, decodes, detect_encoding, detect_wide_codec, encodings_of_locale

SAMPLES = {
    "gbk": "#include <stdio.h>\n// 读取配置文件并初始化系统\nint main(void) { return 0; } /* 主函数 */\n",
    "shift_jis": "#include <stdio.h>\n// 設定ファイルを読み込む\nint main(void) { return 0; } /* メイン関数 */\n",
    "euc_jp": "これはテストファイルです。日本語の文字が含まれています。\n二行目です。\n",
    "euc_kr": "#include <stdio.h>\n// 설정 파일을 읽습니다\nint main(void) { return 0; }\n",
    "big5": "#include <stdio.h>\n// 讀取設定檔並初始化系統\nint main(void) { return 0; } /* 主程式 */\n",
    "cp1251": "#include <stdio.h>\n// чтение файла конфигурации\nint main(void) { return 0; }\n",
    "koi8_r": "Это тестовый файл, содержащий русские буквы.\nВторая строка.\n",
    "cp866": "Это тестовый файл, содержащий русские буквы. Вторая строка текста.\n",
    "cp1250": "Toto je zkušební soubor v českém jazyce. Nastavení programu najdete v nabídce.\n" * 3,
    "cp1252": "Café “quoted” — naïve façade € 5\nDeuxième ligne à côté\n",
    "latin-1": "Café naïve façade déjà vu à côté\n",
    "cp1253": "Αυτό είναι ένα αρχείο δοκιμής με ελληνικά γράμματα.\n",
    "cp1254": "Bu dosya Türkçe karakterler içeriyor: şöyle böyle. İstanbul çok güzel bir şehir.\n" * 3,
    "cp1255": "זהו קובץ בדיקה בעברית. שלום עולם, איך הולך היום?\n",
    "cp1256": "هذا ملف اختبار باللغة العربية. مرحبا بالعالم\n" * 2,
    "cp874": "นี่คือไฟล์ทดสอบภาษาไทย สวัสดีชาวโลก\n" * 2,
}


@pytest.mark.parametrize("codec", SAMPLES)
def test_a_text_in_an_older_encoding_reads_as_it_was_written(codec: str) -> None:
    text = SAMPLES[codec]
    found = detect_encoding(text.encode(codec))
    assert text.encode(codec).decode(found.name) == text


@pytest.mark.parametrize("codec", SAMPLES)
def test_a_long_english_preface_does_not_hide_the_encoding(codec: str) -> None:
    data = b"# nothing but plain words in this line of the licence\n" * 2000 + SAMPLES[codec].encode(codec)
    assert detect_encoding(data).name == detect_encoding(SAMPLES[codec].encode(codec)).name


@pytest.mark.parametrize("codec", SAMPLES)
def test_the_head_of_a_text_may_end_inside_a_character(codec: str) -> None:
    data = SAMPLES[codec].encode(codec)
    beyond_ascii = [at for at in range(len(data) // 2, len(data)) if data[at] > 127]
    for end in beyond_ascii[:4]:
        found = detect_encoding(data[:end], whole=False)
        assert decodes(data[:end], found.name, whole=False)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Encoding("utf-8")),
        (b"a", Encoding("utf-8")),
        (b"plain ASCII\r\n", Encoding("utf-8")),
        ("é".encode(), Encoding("utf-8")),
        ("日本語 🙂\n".encode(), Encoding("utf-8")),
        (codecs.BOM_UTF8, Encoding("utf-8", codecs.BOM_UTF8)),
        (codecs.BOM_UTF8 + b"x", Encoding("utf-8", codecs.BOM_UTF8)),
        ("\ufeffa\n漢".encode("utf-16-le"), Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        ("\ufeffa\n漢".encode("utf-16-be"), Encoding("utf-16-be", codecs.BOM_UTF16_BE)),
        ("\ufeffa".encode("utf-32-le"), Encoding("utf-32-le", codecs.BOM_UTF32_LE)),
        ("\ufeffa".encode("utf-32-be"), Encoding("utf-32-be", codecs.BOM_UTF32_BE)),
        ("ab\n".encode("utf-16-le"), Encoding("utf-16-le")),
        ("ab\n".encode("utf-16-be"), Encoding("utf-16-be")),
        ("这是 一个\n测试".encode("utf-16-le"), Encoding("utf-16-le")),
        ("这是 一个\n测试".encode("utf-16-be"), Encoding("utf-16-be")),
        ("hello\n".encode("utf-32-le"), Encoding("utf-32-le")),
        ("hello\n".encode("utf-32-be"), Encoding("utf-32-be")),
    ],
)
def test_marks_utf8_and_nul_patterns_decide_without_statistics(data: bytes, expected: Encoding) -> None:
    assert detect_encoding(data) == expected


@pytest.mark.parametrize("data", [b"caf\xe9", b"x = '\xe4'\n", b"// 20 \xb0C\n", b"it\x92s\n", b"\xff", b"\xe9"])
def test_a_single_odd_byte_in_english_is_taken_for_western_and_said_to_be_a_guess(data: bytes) -> None:
    assert detect_encoding(data) == Encoding("cp1252", doubtful=True)


@pytest.mark.parametrize(
    "text",
    [
        "Größe",
        "Müller",
        "été",
        "à côté",
        "déjà vu",
        "äöüß",
        "ÄÖÜß",
        "© 2020 Foo",
        "25 °C ± 2",
        "København",
        "¿Qué tal?",
        "x²",
    ],
)
def test_short_western_text_is_not_taken_for_another_script(text: str) -> None:
    data = text.encode("latin-1")
    found = detect_encoding(data, likely=())
    assert data.decode(found.name) == text and found.doubtful


def test_the_language_of_the_locale_decides_where_the_evidence_is_thin() -> None:
    polish, russian = encodings_of_locale("pl_PL.UTF-8"), encodings_of_locale("ru_RU.UTF-8")
    assert (polish, russian) == (("cp1250", "iso8859-2"), ("cp1251", "koi8-r"))
    assert encodings_of_locale("zh_TW.UTF-8")[0] == "big5"
    assert encodings_of_locale("C.UTF-8") == encodings_of_locale("POSIX") == encodings_of_locale("") == ()
    assert detect_encoding("święta\n".encode("cp1250"), likely=polish) == Encoding("cp1250", doubtful=True)
    assert detect_encoding("да".encode("cp1251"), likely=russian) == Encoding("cp1251", doubtful=True)
    assert detect_encoding(b"caf\xe9", likely=russian) == Encoding("cp1252", doubtful=True)


def test_symbols_inside_words_tell_related_encodings_apart() -> None:
    text = "Błąd podczas otwierania pliku. Proszę sprawdzić, czy ścieżka jest właściwa i spróbować jeszcze raz.\n"
    for codec in ("iso8859-2", "cp1250"):
        found = detect_encoding(text.encode(codec), likely=())
        assert (found.name, found.doubtful) == (codec, False)


@pytest.mark.parametrize("text", ["你好", "中"])
def test_two_chinese_characters_are_enough(text: str) -> None:
    assert detect_encoding(text.encode("gbk")).name == "gb18030"


def test_a_few_broken_bytes_do_not_make_utf8_something_else() -> None:
    data = "Größe, naïve, déjà vu — and ".encode() + b"\xff\xfe one torn \xe4\xbd\n"
    assert detect_encoding(data) == Encoding("utf-8", valid=False)


def test_a_character_cut_at_the_end_is_fine_in_a_head_only() -> None:
    cut = "naïve 漢字".encode()[:-1]
    assert detect_encoding(cut, whole=False) == Encoding("utf-8")
    assert detect_encoding(cut) == Encoding("utf-8", valid=False)


def test_a_marked_text_with_half_a_character_keeps_its_mark_but_is_not_sure() -> None:
    assert detect_encoding(codecs.BOM_UTF16_LE + b"a\0b") == Encoding("utf-16-le", codecs.BOM_UTF16_LE, valid=False)
    assert detect_encoding(codecs.BOM_UTF16_LE + b"a\0b", whole=False).valid


def test_a_utf16_mark_followed_by_a_nul_character_is_not_taken_for_utf32() -> None:
    assert detect_encoding(codecs.BOM_UTF16_LE + b"\0\0a\0").name == "utf-16-le"


def test_bytes_that_fit_nothing_are_latin1_which_decodes_them_all() -> None:
    everything = bytes(range(1, 256))
    assert detect_encoding(everything) == Encoding("latin-1", doubtful=True)


def test_nul_bytes_alone_are_no_sign_of_wide_text() -> None:
    assert detect_wide_codec(b"\x01\x00\x02\x00\x03\x00") is None
    assert detect_wide_codec(b"\0" * 64) is None
    assert detect_wide_codec(b"GET\0POST\0") is None


def test_a_line_feed_is_as_wide_as_the_code_unit() -> None:
    assert [Encoding(name).unit for name in ("utf-8", "gb18030", "utf-16-be", "utf-32-le")] == [1, 1, 2, 4]


def test_the_same_bytes_always_give_the_same_answer() -> None:
    data = SAMPLES["gbk"].encode("gbk")
    assert len({detect_encoding(data) for _ in range(5)}) == 1
