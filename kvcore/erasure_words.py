"""Decides which sentences may be said of a class or a flag, in English and Chinese. There are no others.

No sentence holds a word that is stronger than its class: `too_strong` knows the words, pages and documents are held
against it by tests. Flags are told beside any class, so theirs hold no strong word at all.
"""

import re
from typing import Literal

from kvcore.erasure import E3, E4, E5, Erasure

Lang = Literal["en", "zh"]
NAMES: dict[Lang, tuple[str, ...]] = {
    "en": ("ordered", "unreachable", "evicted", "overwritten", "crypto-erased", "media sanitised"),
    "zh": ("已下令", "不可访问", "已逐出", "已覆写", "密码擦除", "介质净化"),
}
STRONG: dict[Lang, tuple[tuple[str, Erasure], ...]] = {
    "en": (
        (r"crypto(graphically)?[- ]?eras\w*", E4),
        (r"eras(e|es|ed|ure|ing)\b", E3),
        (r"(over)?wip(e|es|ed|ing)\b", E3),
        (r"overw(rite|rites|rote|ritten|riting)\b", E3),
        (r"zero(ed|ised|ized)\b", E3),
        (r"purg(e|es|ed|ing)\b", E3),
        (r"irrecoverabl\w*|unrecoverabl\w*|irretrievabl\w*|permanently|forever|no trace", E4),
        (r"destr(oy|oys|oyed|oying|uction)\b", E3),
        (r"shred(s|ded|ding)?\b", E4),
        (r"saniti[sz](e|es|ed|ing|ation)\b", E5),
    ),
    "zh": (
        ("密码擦除|加密擦除", E4),
        ("擦除|抹除|抹去|清零|覆写|覆盖|销毁|清除", E3),
        ("不可恢复|无法恢复|永久|彻底", E4),
        ("净化|消磁", E5),
    ),
}
"""Words, and the lowest class from which on they may be said."""

_CLASSES: dict[Lang, tuple[str, ...]] = {
    "en": (
        "The order to delete is recorded and the entries are fenced in the directory. Nothing is claimed of the bytes.",
        "No request that this deployment routes can address the cached state any more. Its bytes may still exist.",
        "The store confirmed the removal, and a look afterwards found nothing. Bytes may remain until their space is "
        "used again, at a time we do not control.",
        "The whole region was overwritten through the store's own address space and read back.",
        "The data existed here only as AES-256 ciphertext, and its key was destroyed in every store that held it: it "
        "is crypto-erased.",
        "The medium was sanitised; the evidence is attached.",
    ),
    "zh": (
        "删除指令已记录，目录中的条目已设围栏。对字节本身不作任何声明。",
        "本部署所路由的任何请求都无法再访问该缓存状态。其字节可能仍然存在。",
        "存储已确认移除，随后的检查未发现任何内容。字节可能保留到其空间被再次使用为止，时间不由我们控制。",
        "整个区域已通过存储自身的地址空间覆写并回读。",
        "数据在此处仅以 AES-256 密文存在，其密钥已在所有持有它的存储中销毁，即密码擦除。",
        "介质已净化，证据随附。",
    ),
}
_FLAGS: dict[str, dict[Lang, str]] = {
    "HELD": {
        "en": "A legal hold stands: the state is fenced, and its bytes are kept until the hold is released.",
        "zh": "存在法律保留：状态已设围栏，其字节保留至保留解除。",
    },
    "NODE_UNREACHABLE": {
        "en": "A node did not answer. What it holds is fenced and was not looked at.",
        "zh": "有节点未应答。其内容已设围栏，但未经检查。",
    },
    "GAP_UNRESOLVED": {
        "en": "Some announcements of a node are missing, so it is not known what it holds.",
        "zh": "某节点的部分事件缺失，因此无法得知其持有的内容。",
    },
    "LEASED": {
        "en": "Some blocks are still being read and were left in place.",
        "zh": "部分缓存块仍在被读取，未作移除。",
    },
    "BACKUP_UNTIL": {
        "en": "Keyed identifiers, no content, stay in database backups until the date that is given.",
        "zh": "带密钥的标识符（不含内容）保留在数据库备份中，至所示日期为止。",
    },
    "ENGINE_CANNOT": {
        "en": "The engine cannot remove single blocks. The cached state can no longer be matched by any request; bytes "
        "remain until their space is used again, at a time we do not control.",
        "zh": "引擎无法移除单个缓存块。缓存状态已无法被任何请求匹配；"
        "字节保留到其空间被再次使用为止，时间不由我们控制。",
    },
    "SALT_NOT_HONOURED": {
        "en": "The keys of this tier do not depend on the generation, so an old request can still match.",
        "zh": "该层级的键不依赖于代次，因此旧请求仍可能命中。",
    },
    "WEAK_HASH": {
        "en": "The engine names blocks by a weak hash, so two blocks can bear the same name.",
        "zh": "引擎以弱哈希命名缓存块，因此两个块可能同名。",
    },
    "BYPASS_POSSIBLE": {
        "en": "An engine can be reached around our gateway.",
        "zh": "可以绕过我们的网关访问引擎。",
    },
    "KEY_MEDIUM_UNSANITISED": {
        "en": "A key lay on a medium where removing it does not prove that no copy is left.",
        "zh": "密钥曾位于某介质上，从该介质移除密钥并不能证明没有残留副本。",
    },
    "EMULATED": {
        "en": "A tier of this node is emulated: its bytes lay in ordinary memory or files.",
        "zh": "该节点的某层级为模拟：其字节位于普通内存或文件中。",
    },
    "SELF_ATTESTED": {
        "en": "Only the node itself attests this; nobody else has looked.",
        "zh": "仅由节点自身证明；未经他方检查。",
    },
    "FORCED": {
        "en": "Leases that were not over at the deadline were broken.",
        "zh": "截止时尚未结束的租约已被强制中断。",
    },
    "CONTRADICTED": {
        "en": "What a node said does not agree with what was seen of it.",
        "zh": "某节点的陈述与对其的观察不符。",
    },
}


def name(cls: int, lang: Lang = "en") -> str:
    """The name of a class."""
    return NAMES[lang][cls]


def sentence(cls: int, lang: Lang = "en") -> str:
    """The sentence that may be said of a class."""
    return _CLASSES[lang][cls]


def flag_sentence(flag: str, lang: Lang = "en") -> str:
    """The sentence that is said of a flag; one of `FLAGS`."""
    return _FLAGS[flag][lang]


def too_strong(text: str, cls: int, lang: Lang = "en") -> list[str]:
    """The words of a text that claim more than the class."""
    found, left = [], text
    for pattern, least in STRONG[lang]:  # from long to short: crypto-erased is one word
        for match in re.finditer(pattern, left, re.IGNORECASE):
            if cls < least:
                found.append(match[0])
        left = re.sub(pattern, " ", left, flags=re.IGNORECASE)
    return found
