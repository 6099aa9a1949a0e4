"""Decides the words of the certificate's sheet, which stands in English and Chinese beside each other.

None is stronger than the class it stands beside; what a class is called is said by `kvcore.erasure_words`.
"""

METHODS: dict[str, tuple[str, str]] = {
    "memset": ("overwritten", "覆写"),
    "key_destroy": ("the keys of its files were removed", "已移除其文件的密钥"),
    "unlink": ("files were unlinked", "文件已解除链接"),
    "delete": ("removed by the store", "由存储移除"),
    "none": ("nothing was found to remove", "未发现需移除的内容"),
}
LOOKS: dict[str, tuple[str, str]] = {
    "readback": ("read back", "已回读"),
    "probe": ("probed", "已探测"),
    "list": ("listed afterwards", "随后已列出"),
    "none": ("not looked at", "未检查"),
}
PARTS_ZH = {"tenant": "租户", "namespace": "命名空间", "epoch": "模型与纪元", "class": "数据类别", "label": "标签",
            "subject": "主体", "session": "会话", "prefix": "块键", "older_than": "早于"}  # fmt: skip
PARTS_EN = {"tenant": "Tenant", "namespace": "Namespace", "epoch": "Model and epoch", "class": "Data class",
            "label": "Label", "subject": "Subject", "session": "Session", "prefix": "Keys of blocks",
            "older_than": "Older than"}  # fmt: skip


HEADS = (("Tier", "层级", ""), ("Places", "位置", "n"), ("Bytes", "字节", "n"), ("Method and check", "方法与核验", ""),
         ("Class", "等级", ""))  # fmt: skip
SHEET = {
    "what_en": "What was deleted", "what_zh": "删除内容",
    "tiers_en": "Class per tier", "tiers_zh": "各层级等级",
    "all_en": "All", "all_zh": "合计",
    "lowest_en": "the lowest class of all copies counts", "lowest_zh": "以所有副本中的最低等级为准",
    "none_en": "No place was asked.", "none_zh": "未询问任何位置。",
    "odd_en": "Exceptions in plain words", "odd_zh": "例外说明",
    "remark_en": "What has to be known besides", "remark_zh": "另须知晓",
    "when_en": "When", "when_zh": "时间",
    "issued_en": "Issued", "issued_zh": "签发",
    "who_en": "Who", "who_zh": "人员",
    "asked_en": "Asked for by", "asked_zh": "请求人",
    "agreed_en": "Agreed to by", "agreed_zh": "批准人",
    "receipts_en": "Signed receipts", "receipts_zh": "已签名回执",
    "check_en": "How to check this without us", "check_zh": "如何独立核验",
    "how_en": "Save the file and run the line below, with keys that you keep where nobody here can change them. It "
    "needs no connection; one changed bit makes it fail. The code above leads to the page that tells whether it was "
    "issued.",
    "how_zh": "保存文件，用您自己保管、此处无人能更改的密钥运行下方命令。无需联网；任何一位被改动都会导致失败。"
    "上方的二维码指向可查询其是否已签发的页面。",
    "dev_en": "No seal: issued in a development installation.", "dev_zh": "无印章：签发于开发环境。",
    "seal_en": "No seal.", "seal_zh": "无印章。",
    "foot_en": "Persons are named by keyed references. The words of this page come from a fixed list, and none claims "
    "more than the class beside it.",
    "foot_zh": "人员以带密钥的引用表示。本页用语取自固定词表，均不超出其旁所示等级。",
}  # fmt: skip
