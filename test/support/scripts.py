"""Short texts in twenty scripts, and what else trips tokenizers."""

# ruff: noqa: E501, RUF001
from __future__ import annotations

__all__ = ["ODD", "SCRIPTS"]

SCRIPTS = {
    "Latin": "The quick brown fox doesn't jump over 12,345 lazy dogs; naïve café, Straße!",
    "Greek": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "Cyrillic": "Быстрая коричневая лиса прыгает через ленивую собаку в 1999 году.",
    "Arabic": "الثعلب البني السريع يقفز فوق الكلب الكسول ١٢٣.",
    "Hebrew": "השועל החום המהיר קופץ מעל הכלב העצלן.",
    "Devanagari": "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है १२३।",
    "Bengali": "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর দিয়ে লাফ দেয়।",
    "Tamil": "விரைவான பழுப்பு நரி சோம்பேறி நாயின் மேல் குதிக்கிறது.",
    "Telugu": "వేగవంతమైన గోధుమ రంగు నక్క సోమరి కుక్కపై దూకుతుంది.",
    "Gurmukhi": "ਤੇਜ਼ ਭੂਰੀ ਲੂੰਬੜੀ ਆਲਸੀ ਕੁੱਤੇ ਉੱਤੇ ਛਾਲ ਮਾਰਦੀ ਹੈ।",
    "Thai": "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓",
    "Lao": "ໝາຈອກສີນ້ຳຕານໂດດຂ້າມໝາຂີ້ຄ້ານ",
    "Khmer": "កញ្ជ្រោងពណ៌ត្នោតលោតរំលងឆ្កែខ្ជិល",
    "Georgian": "სწრაფი ყავისფერი მელა ზარმაც ძაღლს გადაახტა.",
    "Armenian": "Արագ շագանակագույն աղվեսը ցատկում է ծույլ շան վրայով։",
    "Ethiopic": "ፈጣኑ ቡናማ ቀበሮ ሰነፉን ውሻ ዘለለ።",
    "Hangul": "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "Kana": "すばやい茶色のキツネがのろまな犬を飛び越える。",
    "Han": "敏捷的棕色狐狸跳过了懒惰的狗，共二〇二六年。",
    "Cherokee": "ᎠᏆᏛᏅᎢ ᏥᏍᏕᏥ ᎤᏬᏚ ᎩᎵ.",
}

ODD = (
    "", " ", "  two  spaces ", "\n\n\tx = [1,2]\r\n    return x  \n", "I'LL we'll IT'S 'tis",
    "a\u0301e\u0302 decomposed", "👩\u200d👩\u200d👧 🇩🇪 👍🏽", "\u202eright to left\u202c", "x\u0000y",
    "1234567890 12 3.14e-10 ½ Ⅷ", "<s>text</s> <|im_start|>user<|im_end|>", "\ufeffBOM", "\u2581 a\u2581b",
    "ＦＵＬＬ　ｗｉｄｔｈ", "https://example.com/a?b=c&d=%20#e", "CamelCaseAndsnake_case__name",
)  # fmt: skip
