DIGESTS: dict[str, str] = {}
