"""What a device can do at best: the dense matrix FLOPs a second that its maker states, by precision."""

from __future__ import annotations

import re

import torch

# part of the name -> (half precision with float32 sums, float32 as torch multiplies it by default), in TFLOP/s, without
# sparsity: the makers' data sheets. The longest part that fits decides.
_STATED = {
    "B200": (2250.0, 75.0),
    "H200": (989.0, 67.0),
    "H100": (989.0, 67.0),
    "H100 PCIe": (756.0, 51.0),
    "H100 NVL": (835.0, 60.0),
    "A100": (312.0, 19.5),
    "A40": (149.7, 37.4),
    "A10": (125.0, 31.2),
    "L40S": (362.0, 91.6),
    "L40": (181.0, 90.5),
    "L4": (121.0, 30.3),
    "V100": (125.0, 15.7),
    "T4": (65.0, 8.1),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
    "MI300X": (1307.0, 163.4),
    "MI250X": (383.0, 95.7),
}


def stated_peak(name: str, half: bool) -> float | None:
    """FLOPs a second of the device called so, in bfloat16 or float16 if `half`, else in float32; None: not known."""
    fitting = [part for part in _STATED if re.search(rf"\b{part}\b", name)]  # an A10G is no A10
    if not fitting:
        return None
    in_half, in_single = _STATED[max(fitting, key=len)]
    return 1e12 * (in_half if half else in_single)


def peak_of(device: torch.device, precision: str) -> float | None:
    """The same of a torch device, under a `precision` of Lightning's Trainer such as "bf16-mixed"."""
    if device.type != "cuda":
        return None
    return stated_peak(torch.cuda.get_device_name(device), half="16" in precision)
