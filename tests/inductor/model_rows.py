"""The models that `models.py` compares: how each is made (random weights, small sizes) and what it is called with.

Input: a name. Output: a `Row`. Nothing is installed or downloaded: the packages have to be there.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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
