"""The served weights as an F16 GGUF file, for llama.cpp: the same numbers that the target computes with."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize


def write_f16(source: Path, path: Path) -> Path:
    """Copies a quantised GGUF with its metadata, matrices as F16. Does nothing where `path` is there.

    Values go through bf16, as the target's did; F16 holds every such value above 6e-5 exactly.
    """
    if path.is_file():
        return path
    reader = GGUFReader(source)
    scratch = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(scratch, str(architecture))
    for name, field in reader.fields.items():
        # The writer tells the first two itself; the file's type is no longer what it was.
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(torch.bfloat16)
        # llama.cpp keeps vectors, which are norms, in 32 bits.
        kept = values.to(torch.float32 if values.ndim == 1 else torch.float16)
        writer.add_tensor(tensor.name, kept.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(scratch, path)
    return path
