"""Models of PyPI's `transformers` and `timm` with random weights, compiled, against eager.

Input: a name of the table, or none for all. Output: a line a model: how far outputs and gradients are from the same
model in float64 (relative to the largest number of each tensor), fallbacks, graphs, CPU seconds of the first call.
Nothing is installed or downloaded: the packages have to be there. Law: a model agrees when outputs, buffers, the loss
and every gradient do, in as few graphs as Dynamo's own "aot_eager" needs.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import inductor_backend  # noqa: F401  (registers the backend)

IDS = (2, 17)


def ids(vocabulary: int = 99, shape: tuple[int, ...] = IDS) -> torch.Tensor:
    """Token numbers, the same ones every time."""
    return torch.randint(3, vocabulary, shape, generator=torch.Generator().manual_seed(1))


def picture(size: int = 32, channels: int = 3) -> torch.Tensor:
    """Two pictures, the same ones every time."""
    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(2))


def padded() -> torch.Tensor:
    """A mask of tokens whose second row is half padding."""
    mask = torch.ones(IDS, dtype=torch.int64)
    mask[1, 9:] = 0
    return mask


@dataclass(frozen=True)
class Row:
    """One model: its package, how it is made, and what it is called with.

    Attributes:
        package: "transformers" or "timm".
        make: gives the module.
        call: gives its keyword arguments ("" is the positional one).
        train: whether it runs in training mode (dropout is 0 in every configuration).
    """

    package: str
    make: Callable[[], torch.nn.Module]
    call: Callable[[], dict[str, Any]]
    train: bool = False


def hugging(model: str, config: str, call: Callable[[], dict[str, Any]], train: bool = False, **sizes: Any) -> Row:
    """A model of transformers from its configuration's class."""

    def make() -> torch.nn.Module:
        import transformers

        made = getattr(transformers, config)(**sizes)
        return getattr(transformers, model)(made)

    return Row("transformers", make, call, train)


def pretty(name: str, size: int = 32, train: bool = False, **given: Any) -> Row:
    """A model of timm by its name."""

    def make() -> torch.nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **given)

    return Row("timm", make, lambda: {"": picture(size)}, train)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
CODER = SMALL | {"vocab_size": 99, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = SMALL | {"vocab_size": 99, "num_key_value_heads": 2, "max_position_embeddings": 64}
VISION = SMALL | {"image_size": 32, "patch_size": 8}
EXPERTS = {"num_experts_per_tok": 2}


def labelled() -> dict[str, Any]:
    """Tokens to be predicted from themselves."""
    return {"input_ids": ids(), "labels": ids(), "attention_mask": padded()}


def plain() -> dict[str, Any]:
    """Tokens and their mask."""
    return {"input_ids": ids(), "attention_mask": padded()}


ROWS: dict[str, Row] = {
    "bert": hugging("BertForMaskedLM", "BertConfig", labelled, train=True, **CODER),
    "roberta": hugging("RobertaModel", "RobertaConfig", plain, **CODER),
    "distilbert": hugging(
        "DistilBertForMaskedLM", "DistilBertConfig", labelled, dim=32, n_layers=2, n_heads=4, hidden_dim=48,
        vocab_size=99, dropout=0.0, attention_dropout=0.0,
    ),
    "albert": hugging("AlbertModel", "AlbertConfig", plain, embedding_size=16, **CODER),
    "electra": hugging("ElectraModel", "ElectraConfig", plain, embedding_size=16, **CODER),
    "deberta": hugging(
        "DebertaV2ForMaskedLM", "DebertaV2Config", labelled, relative_attention=True, position_buckets=8,
        pos_att_type=["p2c", "c2p"], max_position_embeddings=64, **CODER,
    ),
    "gpt2": hugging(
        "GPT2LMHeadModel", "GPT2Config", labelled, train=True, n_embd=32, n_layer=2, n_head=4, n_positions=64,
        vocab_size=99, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "gpt_neox": hugging(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", labelled, vocab_size=99, max_position_embeddings=64, **SMALL
    ),
    "opt": hugging(
        "OPTForCausalLM", "OPTConfig", labelled, vocab_size=99, hidden_size=32, num_hidden_layers=2, ffn_dim=48,
        num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.0,
    ),
    "llama": hugging("LlamaForCausalLM", "LlamaConfig", labelled, train=True, **DECODER),
    "mistral": hugging("MistralForCausalLM", "MistralConfig", labelled, sliding_window=8, head_dim=8, **DECODER),
    "mixtral": hugging(
        "MixtralForCausalLM", "MixtralConfig", labelled, train=True, num_local_experts=4, **EXPERTS, **DECODER
    ),
    "qwen2": hugging("Qwen2ForCausalLM", "Qwen2Config", labelled, **DECODER),
    "qwen3": hugging("Qwen3ForCausalLM", "Qwen3Config", labelled, head_dim=8, **DECODER),
    "gemma": hugging("GemmaForCausalLM", "GemmaConfig", labelled, head_dim=8, **DECODER),
    "gemma2": hugging("Gemma2ForCausalLM", "Gemma2Config", labelled, head_dim=8, sliding_window=8, **DECODER),
    "gemma3": hugging("Gemma3ForCausalLM", "Gemma3TextConfig", labelled, head_dim=8, sliding_window=8, **DECODER),
    "phi3": hugging("Phi3ForCausalLM", "Phi3Config", labelled, pad_token_id=0, **DECODER),
    "falcon": hugging(
        "FalconForCausalLM", "FalconConfig", labelled, vocab_size=99, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4,
    ),
    "bloom": hugging(
        "BloomForCausalLM", "BloomConfig", labelled, vocab_size=99, hidden_size=32, n_layer=2, n_head=4
    ),
    "mamba": hugging(
        "MambaForCausalLM", "MambaConfig", lambda: {"input_ids": ids(), "labels": ids()}, vocab_size=99,
        hidden_size=32, num_hidden_layers=2, state_size=4, use_cache=False,
    ),
    "mamba2": hugging(
        "Mamba2ForCausalLM", "Mamba2Config", lambda: {"input_ids": ids(), "labels": ids()}, vocab_size=99,
        hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=8, n_groups=2, chunk_size=8,
        use_cache=False,
    ),
    "t5": hugging(
        "T5ForConditionalGeneration", "T5Config", lambda: {"input_ids": ids(), "labels": ids()[:, :7]}, train=True,
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=99, dropout_rate=0.0,
        decoder_start_token_id=0,
    ),
    "bart": hugging(
        "BartForConditionalGeneration", "BartConfig", lambda: {"input_ids": ids(), "labels": ids()[:, :7]},
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=99, max_position_embeddings=64, dropout=0.0,
    ),
    "whisper_encoder": hugging(
        "WhisperModel", "WhisperConfig",
        lambda: {
            "input_features": torch.randn(2, 8, 60, generator=torch.Generator().manual_seed(3)),
            "decoder_input_ids": ids(shape=(2, 5)),
        },
        train=True, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=99, num_mel_bins=8,
        max_source_positions=30, max_target_positions=20, dropout=0.0, pad_token_id=0, decoder_start_token_id=1,
    ),
    "wav2vec2": hugging(
        "Wav2Vec2Model", "Wav2Vec2Config",
        lambda: {"input_values": torch.randn(2, 640, generator=torch.Generator().manual_seed(3))},
        conv_dim=(16, 16), conv_kernel=(8, 4), conv_stride=(4, 2), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, **SMALL,
    ),
    "hf_vit": hugging("ViTForImageClassification", "ViTConfig", lambda: {"pixel_values": picture()}, **VISION),
    "clip": hugging(
        "CLIPModel", "CLIPConfig",
        lambda: {"input_ids": ids(), "attention_mask": padded(), "pixel_values": picture(), "return_loss": True},
        text_config=SMALL | {"vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 2},
        vision_config=VISION, projection_dim=16,
    ),
    "hf_swin": hugging(
        "SwinForImageClassification", "SwinConfig", lambda: {"pixel_values": picture()}, image_size=32, patch_size=2,
        embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0,
    ),
    "dinov2": hugging("Dinov2Model", "Dinov2Config", lambda: {"pixel_values": picture()}, **VISION),
    "segformer": hugging(
        "SegformerForSemanticSegmentation", "SegformerConfig", lambda: {"pixel_values": picture(64)},
        hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16,
        drop_path_rate=0.0, classifier_dropout_prob=0.0, num_labels=4,
    ),
    "detr": hugging(
        "DetrForObjectDetection", "DetrConfig", lambda: {"pixel_values": picture(64)}, d_model=32, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_queries=6, dropout=0.0, use_timm_backbone=False, use_pretrained_backbone=False,
        backbone=None, backbone_config=None,
    ),
    "vit": pretty("vit_tiny_patch16_224", 32, True, img_size=32, embed_dim=32, depth=2, num_heads=4, patch_size=8),
    "deit": pretty("deit_tiny_patch16_224", 32, img_size=32, embed_dim=32, depth=2, num_heads=4, patch_size=8),
    "resnet50": pretty("resnet50", 64, train=True),
    "resnet18": pretty("resnet18", 64),
    "resnext": pretty("resnext50_32x4d", 64),
    "convnext": pretty("convnext_atto", 64, depths=(1, 1, 2, 1), dims=(8, 16, 24, 32), train=True),
    "efficientnet": pretty("efficientnet_b0", 64, train=True, drop_rate=0.0),
    "mobilenet_v2": pretty("mobilenetv2_050", 64),
    "mobilenet_v3": pretty("mobilenetv3_small_050", 64, train=True),
    "swin": pretty("swin_tiny_patch4_window7_224", 56, img_size=56, embed_dim=16, depths=(2, 2), num_heads=(2, 4)),
    "regnet": pretty("regnetx_002", 64),
    "densenet": pretty("densenet121", 64, growth_rate=8, block_config=(2, 2, 2, 2)),
    "mixer": pretty("mixer_s32_224", 64, img_size=64),
    "maxvit": pretty("coatnet_pico_rw_224", 64, img_size=64),
    "edgenext": pretty("edgenext_xx_small", 64),
    "poolformer": pretty("poolformer_s12", 64),
    "ghostnet": pretty("ghostnet_050", 64),
    "inception": pretty("inception_v3", 96),
    "hrnet": pretty("hrnet_w18_small", 64),
    "beit": pretty("beit_base_patch16_224", 32, img_size=32, embed_dim=32, depth=2, num_heads=4, patch_size=8),
    "eva02": pretty("eva02_tiny_patch14_224", 28, img_size=28, embed_dim=32, depth=2, num_heads=4),
    "levit": pretty("levit_128s", 224),
    "repvgg": pretty("repvgg_a0", 64),
    "nfnet": pretty("nfnet_l0", 64),
}  # fmt: skip


def load(package: str) -> None:
    """Import a package; timm gets a stand-in for the one class of torchvision that it needs at import.

    torchvision from PyPI doesn't fit a CPU build of torch, and no model here uses it.
    """
    if package != "timm" or "torchvision" in sys.modules:
        return
    if importlib.util.find_spec("transformers") is not None:
        from transformers.utils import is_torchvision_available

        is_torchvision_available()
    for name in ("torchvision", "torchvision.ops", "torchvision.ops.misc", "torchvision.transforms",
                 "torchvision.transforms.functional", "torchvision.datasets"):  # fmt: skip
        module = sys.modules[name] = types.ModuleType(name)
        module.__spec__ = importlib.util.spec_from_loader(name, None)
        module.__getattr__ = lambda attribute, place=name: _absent(place, attribute)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


class _Named(type):
    """The type of classes whose attributes are their own names, as an enumeration's are read."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


def _absent(place: str, attribute: str) -> Any:
    """A class in the place of one that no model here makes an object of."""
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    if place == "torchvision.ops.misc":
        return type(attribute, (torch.nn.Module,), {})
    return _Named(attribute, (), {})


def tensors(result: Any) -> list[torch.Tensor]:
    """Every tensor of a model's result."""
    return [t for t in tree_leaves(dict(result) if hasattr(result, "keys") else result) if isinstance(t, torch.Tensor)]


def loss_of(result: Any) -> torch.Tensor:
    """A scalar that every floating-point output matters to: weighed by fixed random numbers, so that no norm's output
    has a constant loss, whose gradients are rounding errors only."""
    loss = torch.zeros(())
    for number, t in enumerate(tensors(result)):
        if t.is_floating_point() and t.requires_grad:
            weights = torch.randn(t.shape, generator=torch.Generator().manual_seed(number)).to(t.dtype)
            loss = loss + (t if t.dim() == 0 else (t * weights).sum() / t.numel() ** 0.5)
    return loss


@dataclass
class Outcome:
    """One model's comparison."""

    outputs: float
    gradients: float
    graphs: int
    fallbacks: list[str]
    seconds: float
    peer: float


def alike(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether dtype, shape and strides agree."""
    wide = [d for d in range(want.dim()) if want.shape[d] > 1]
    strides = all(got.stride(d) == want.stride(d) for d in wide)
    return got.dtype == want.dtype and got.shape == want.shape and strides


def distance(got: Any, want: Any, truth: Any, limit: float, floor: float = 0.0) -> float:
    """How far from the truth, relative to its largest number or `floor`; `limit` is four times as far as eager is.

    What is nothing but rounding (the gradient of a bias before a normalisation) has no size of its own to compare with:
    that of the other tensors is its floor.
    """
    if got is None or want is None:
        return 0.0 if got is want else float("inf")
    if not alike(got, want):
        return float("inf")
    if not want.numel():
        return 0.0
    got, want, truth = (t.detach().double() for t in (got, want, truth))
    same = (got == truth) | (got.isnan() & truth.isnan())
    apart = torch.where(same, 0.0, (got - truth).abs()).max().item()
    usual = torch.where((want == truth) | truth.isnan(), 0.0, (want - truth).abs()).max().item()
    size = truth[truth.isfinite()].abs().max().item() if truth.isfinite().any() else 0.0
    value = apart / max(size, 4 * usual / limit, floor, 1e-30)
    return float("inf") if value != value else value


def floor_of(tensors: Iterable[torch.Tensor | None]) -> float:
    """A thousandth of the largest number of all."""
    return 1e-3 * max([t.abs().max().item() for t in tensors if t is not None and t.numel()] or [0.0])


def run(model: torch.nn.Module, call: dict[str, Any], fn: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Outputs and gradients of one forward and backward."""
    arguments = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in call.items() if k}
    result = fn(*([call[""].clone()] if "" in call else []), **arguments)
    loss = loss_of(result)
    loss.backward()
    return [*tensors(result), loss], {n: p.grad for n, p in model.named_parameters()}


def cpu_seconds() -> float:
    """CPU time of this process and of the compilers that it has waited for."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def compare(row: Row, dtype: torch.dtype = torch.float32, peer: str | None = None, dynamic: bool = False) -> Outcome:
    """Compile a model and compare it with itself."""
    limit = LIMITS[dtype]
    load(row.package)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = row.make().to(dtype).train(row.train)
    call = {k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in row.call().items()}
    twin, spare, wide = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(model).double()
    want, wanted = run(model, call, model)
    precise = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in call.items()}
    try:
        truth, true = run(wide, precise, wide)
    except RuntimeError:  # an operator that eager has no float64 for
        truth, true, wide = want, wanted, model
    torch._dynamo.reset()
    whole = True
    try:
        run(spare, call, torch.compile(spare, backend="aot_eager", fullgraph=True, dynamic=dynamic))
    except Exception as failure:
        whole = False
        print(f"    (not one graph for Dynamo: {type(failure).__name__} {str(failure).strip().splitlines()[0][:140]})")
    fallbacks: list[str] = []
    from inductor_backend import compile as compiler

    publish = compiler.CompiledGraph.publish

    def watch(self: Any, assembly: Any) -> None:
        fallbacks.extend(f"{n.target}: {why}" for n, why in assembly.plan.aten.items() if why)
        publish(self, assembly)

    eager = compiler.CompiledGraph.eager

    def watch_eager(self: Any, reason: str) -> Any:
        fallbacks.append(f"the whole graph: {reason}")
        return eager(self, reason)

    compiler.CompiledGraph.publish, compiler.CompiledGraph.eager = watch, watch_eager
    torch._dynamo.reset()
    before, start = inductor_backend.compile_count(), cpu_seconds()
    try:
        compiled = torch.compile(twin, backend="pallas", fullgraph=whole, dynamic=dynamic)
        got, gotten = run(twin, call, compiled)
    finally:
        compiler.CompiledGraph.publish, compiler.CompiledGraph.eager = publish, eager
    seconds = cpu_seconds() - start
    peer_seconds = float("nan")
    if peer:
        torch._dynamo.reset()
        again, start = copy.deepcopy(twin), cpu_seconds()
        run(again, call, torch.compile(again, backend=peer, fullgraph=whole))
        peer_seconds = cpu_seconds() - start
    outputs = [distance(*three, limit) for three in zip(got, want, truth, strict=True)]
    floor = floor_of(wide.buffers())
    buffers = zip(twin.buffers(), model.buffers(), wide.buffers(), strict=True)
    outputs += [distance(*three, limit, floor) for three in buffers]
    floor = floor_of(true.values())
    gradients = [distance(gotten[n], wanted[n], true[n], limit, floor) for n in wanted]
    count = inductor_backend.compile_count() - before
    return Outcome(max(outputs), max(gradients), count, fallbacks, seconds, peer_seconds)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--peer", help="another backend whose first call is timed")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--dynamic", action="store_true")
    given = parser.parse_args()
    bad = 0
    limit = LIMITS[getattr(torch, given.dtype)]
    for name in given.names or ROWS:
        row = ROWS[name]
        if importlib.util.find_spec(row.package) is None:
            print(f"{name:18} {row.package} is not installed")
            continue
        try:
            o = compare(row, getattr(torch, given.dtype), given.peer, given.dynamic)
        except Exception as failure:
            bad += 1
            print(f"{name:18} FAILS {type(failure).__name__}: {str(failure).strip()[:600]}", flush=True)
            continue
        wrong = not (o.outputs <= limit and o.gradients <= limit)
        bad += wrong
        print(
            f"{name:18} {'WRONG' if wrong else 'right'} outputs {o.outputs:.1e} gradients {o.gradients:.1e} "
            f"graphs {o.graphs} fallbacks {len(o.fallbacks)} {o.seconds:.1f} s"
            + (f" {given.peer} {o.peer:.1f} s" if given.peer else ""),
            flush=True,
        )
        for line in dict.fromkeys(o.fallbacks):
            print("     ", line)
    return bad


if __name__ == "__main__":
    sys.exit(main())
