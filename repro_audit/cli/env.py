"""``repro-audit env``: the facts that a manifest records as claims."""

from __future__ import annotations

import json
import sys

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import Device, known_device, resolve_device
from repro_audit.cli.output import write_text
from repro_audit.verdict import Result


@command("env")
def env(common: Common, device: Device = "cpu") -> Result | None:
    """What a manifest made here would say about this machine and its software."""
    from repro_audit.verify.environment import collect

    facts = collect(resolve_device(known_device(device)))
    if common.outputs.format == "json":
        text = json.dumps(facts, indent=2) + "\n"
    else:
        width = max(map(len, facts))
        text = "".join(f"{name:<{width}}  {value}\n" for name, value in facts.items())
    if common.outputs.path is not None:
        write_text(common.outputs.path, text, force=common.outputs.force)
    else:
        sys.stdout.write(text)
    return None
