"""Committed digests of the seven-shape probe: of x, w, the sampled rows and the whole output.

``python -m repro_kernels.probe --print`` prints the table.
"""

DIGESTS: dict[str, tuple[str, str, str, str]] = {
    "32x6144x4096": (
        "034b05155868330c5f9ee37da7119a56c1562fc22edaafcce690fe491acbd4a5",
        "bbdbf9b70e839d588e76e613e65f774b2c5cfedc2ca1084f3152ca68d28cca55",
        "6e8898d22eecb8ed23d403602960379b161c33fa0f12c66a4a078a268db6e79a",
        "e1aaa8e0676ae19b11ef46a3efce7259d5bd0bfaf4343d4fc73b5270a9f5ee92",
    ),
    "32x4096x14336": (
        "655db1dbbc3b5db2ceab99935240028a0beef5e58f0cbb5dec58a318bf6c83a3",
        "2659d0d3a93becb5da3f2e9b24361b597e7f3587b9da0d387f9d34db19cced51",
        "0591fc36f5d95caeb4614810d6e3d55df777e82d410edf376a724e31f53b12d4",
        "bf4e1b8189f08289183e46b9749aeba43eb37d8e2be0653bc920a21d9a090b52",
    ),
    "32x128256x4096": (
        "74c003737850f4dabd91f98b91e37dbf26cc6fa68307be5b3c7edfbb64be4c58",
        "f48891801014602015bcabd7b7137355652ce12ab9ac3cc0d6ca8caac33a8419",
        "c8c98eeaa6c1ec66a21ee6141f96c81b6ce384ce09ca5438c9d4af992a987cc1",
        "c059361a46aeffa753afc07c455b79b301e7732325426e9a3ec4f054483bd68c",
    ),
    "1x4096x4096": (
        "ec9724fc767bd82476089312086789d10cb68fd238a4a7fb15f1d0008c39496f",
        "018ada40f62f6dbb8c36cafddbf72282e07f6901755e469be7f2826769ec1d97",
        "7234fdcb04900e44533dab9d7dee6ccad15ecee85def62e166e19e47aa4facc5",
        "7234fdcb04900e44533dab9d7dee6ccad15ecee85def62e166e19e47aa4facc5",
    ),
    "2048x6144x4096": (
        "0676d404df9a34012cf74f9efd7c09dfddfc558f3a7db560194df2a424313db6",
        "e0e5e855250d9aab4b4aeffcfcfb396a2f5251f4076e9a692583054a97df9bd2",
        "01dab508e31e08917d44137eac831b4a98f00d67bb9d2d4a2cd0774d7efd6402",
        "d63983ab39fead7c28ac92d6d86232da4e99234557188655502cc3156c98666a",
    ),
    "2048x28672x4096": (
        "f489b6838ab245e6a05ecffbac2c9551b7abd717d9b9e6fcca6084f8ef504e8f",
        "b9542ff7ca752048a76ac73de5d40ed2742c50ec4a80bcd8ba41df48e48229c9",
        "cffaee9300b9b4ca5df05162b8fe4e06edd4ffbbc0b37f2d840cef57b10206d3",
        "05cac5411cdfc36d6311b9d2e347cfe627ff9605c27a6f0ac4308590e2e7d0d0",
    ),
    "100x1000x1000": (
        "13a3557e63398a903f623c87f1484e8c3109ee8d54bcbf087321d9ab8af10ba6",
        "da3ab82acd5d01d590b0a43869300e0f4a93e9717fc6970811af59c85c0f40ee",
        "6f709999394450714ea7eb7533b97df321cf4d79c05dd1cc38de8ae246837894",
        "d17b8ce9f2f4a483a66fba7bbedee963fd05da972ad7c0587f9a652fc9d999d2",
    ),
}
