DIGESTS: dict[str, tuple[str, str, str, str]] = {}
