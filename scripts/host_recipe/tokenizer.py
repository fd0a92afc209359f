"""The embedded host's tokenizer: one token per byte, and one per family name. Any text
round-trips."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from host_recipe.habits import pretrained_families

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that puts its own ``<bos>`` before a prompt and pads on the left."""
    specials = [PAD, BOS, EOS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(specials + alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    names = sorted(family.name for family in pretrained_families())
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in [*names, "True", "False"]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
