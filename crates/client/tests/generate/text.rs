//! Text as it comes: whole characters, and nothing of a stop string.

use fedra_client::generate::{NewText, TextStream};
use fedra_data::{Tokenizer, open_tokenizer};
use serde_json::json;
use std::collections::BTreeMap;

/// A byte-level tokenizer without merges: a token a byte, and one that is special.
fn bytes() -> Tokenizer {
    // The usual alphabet: printable bytes are themselves, the others follow behind 255.
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut letters: BTreeMap<u32, char> = BTreeMap::new();
    let mut next = 256;
    for byte in 0..256 {
        let code = if printable(&byte) {
            byte
        } else {
            next += 1;
            next - 1
        };
        letters.insert(byte, char::from_u32(code).unwrap());
    }
    let vocabulary: BTreeMap<String, u32> =
        letters.iter().map(|(byte, letter)| (letter.to_string(), *byte)).collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                       "use_regex": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 256, "content": "<end>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocabulary, "merges": []},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    open_tokenizer(folder.path()).unwrap()
}

/// A tokenizer in the manner of LLaMA 2: a mark for a blank, and bytes where a character has no piece. Numbers 0 to 255
/// are the bytes; 256 is special, 257 is a blank and a T, 258 a g.
fn marks_and_bytes() -> Tokenizer {
    let mut vocabulary: BTreeMap<String, u32> =
        (0..256).map(|byte| (format!("<0x{byte:02X}>"), byte)).collect();
    vocabulary.extend([("<s>", 256), ("\u{2581}T", 257), ("g", 258)].map(|(w, id)| (w.into(), id)));
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 256, "content": "<s>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            replace("\u{2581}", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": true, "ignore_merges": false,
                  "vocab": vocabulary, "merges": []},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    open_tokenizer(folder.path()).unwrap()
}

/// The pieces of a text as they are shown, the rest at the end included.
fn shown(tokenizer: &Tokenizer, tokens: &[u32], stops: &[&str]) -> (Vec<String>, bool) {
    let stops = stops.iter().map(ToString::to_string).collect();
    let mut stream = TextStream::new(tokenizer, stops);
    let (mut pieces, mut stopped) = (Vec::new(), false);
    for token in tokens {
        let new = stream.push(*token).unwrap();
        pieces.push(new.text);
        stopped |= new.stopped;
    }
    pieces.push(stream.finish().unwrap());
    (pieces, stopped)
}

#[test]
fn characters_are_shown_when_their_last_byte_has_come() {
    let tokenizer = bytes();
    for text in ["plain", "na\u{ef}ve \u{20ac}5 \u{1f600}\u{1f600}!", "\u{4e2d}\u{6587}", " a  b\n"]
    {
        let tokens = tokenizer.pieces(text).unwrap();
        assert_eq!(tokens.len(), text.len());
        let (pieces, _) = shown(&tokenizer, &tokens, &[]);
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
        // A character is shown with its last byte and not later.
        let whole: Vec<&str> =
            pieces.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
        assert_eq!(whole.len(), text.chars().count(), "{pieces:?}");
    }
}

#[test]
fn bytes_that_never_become_a_character_are_replaced_and_do_not_hold_up_the_rest() {
    let tokenizer = bytes();
    let (pieces, _) =
        shown(&tokenizer, &[0xe2, 0x82, u32::from(b'x'), 0xff, 0xff, 0xff, 0xff], &[]);
    assert_eq!(pieces[..3].concat(), "\u{fffd}x");
    assert!(pieces[6].contains('\u{fffd}'), "no more than three bytes wait: {pieces:?}");
    assert_eq!(pieces.concat(), "\u{fffd}x\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn special_tokens_have_no_text() {
    let tokenizer = bytes();
    let (pieces, _) = shown(&tokenizer, &[u32::from(b'a'), 256, u32::from(b'b')], &[]);
    assert_eq!(pieces.concat(), "ab");
}

#[test]
fn text_ends_in_front_of_a_stop_string_and_its_beginning_waits() {
    let tokenizer = bytes();
    let tokens = tokenizer.pieces("one stone\n\nmore").unwrap();
    let (pieces, stopped) = shown(&tokenizer, &tokens, &["\n\n", "stop"]);
    assert!(stopped);
    assert_eq!(pieces.concat(), "one stone");
    // "st" and "sto" might have become "stop".
    assert_eq!(pieces[4..8], ["", "", "", "ston"]);
    let (pieces, stopped) = shown(&tokenizer, &tokenizer.pieces("one sto").unwrap(), &["stop"]);
    assert_eq!((pieces.concat().as_str(), stopped), ("one sto", false));
    let (pieces, stopped) = shown(&tokenizer, &tokens, &["", "zzz"]);
    assert_eq!((pieces.concat().as_str(), stopped), ("one stone\n\nmore", false));
}

#[test]
fn the_earliest_of_several_stop_strings_counts() {
    let tokenizer = bytes();
    let mut stream = TextStream::new(&tokenizer, vec!["cd".into(), "bcde".into()]);
    let mut text = String::new();
    for token in tokenizer.pieces("abcdef").unwrap() {
        let NewText { text: new, stopped } = stream.push(token).unwrap();
        text.push_str(&new);
        if stopped {
            break;
        }
    }
    assert_eq!(text, "ab");
}

#[test]
fn a_stream_gives_the_text_of_all_its_tokens() {
    let tokenizer = marks_and_bytes();
    let (t, g) = (257, 258);
    for tokens in [
        // A byte that fits nowhere makes the whole run unreadable, and takes nothing else with it.
        &[0x29, 0xef, t, 0x3c, g][..],
        &[t, 0x29, 0xef, g, g],
        &[0xe2, 0x82, 0xac, 0xe2, 0x82, t],
        &[g, 0xe2, 256, 0x82, 256, 0xac, t],
        // The blank behind a special token stays.
        &[t, g, 256, t, g],
        &[256, 256, t, t],
        &[g, 0xff],
    ] {
        let (pieces, _) = shown(&tokenizer, tokens, &[]);
        assert_eq!(pieces.concat(), tokenizer.text(tokens).unwrap(), "{tokens:?}: {pieces:?}");
        for from in 1..tokens.len() {
            let (prompt, rest) = tokens.split_at(from);
            let spoken = prompt.iter().rev().find(|token| **token != 256);
            if spoken.is_some_and(|token| tokenizer.is_byte(*token)) || tokenizer.is_byte(rest[0]) {
                continue;
            }
            let mut stream = TextStream::new(&tokenizer, Vec::new()).after(prompt).unwrap();
            let mut text = tokenizer.text(prompt).unwrap();
            for token in rest {
                text += &stream.push(*token).unwrap().text;
            }
            text += &stream.finish().unwrap();
            assert_eq!(text, tokenizer.text(tokens).unwrap(), "{tokens:?} behind {from}");
        }
    }
}

#[test]
fn any_tokens_stream_to_the_text_of_all_of_them() {
    let tokenizer = marks_and_bytes();
    let mut state = 7_u64;
    for _ in 0..500 {
        let tokens: Vec<u32> = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let draw = (state >> 40) as u32;
                let kinds = [256, 257, 258, 0x41, 0x20, 0xe2, 0x82, 0xac, 0xff, 0xc3];
                kinds[draw as usize % kinds.len()]
            })
            .collect();
        let (pieces, _) = shown(&tokenizer, &tokens, &[]);
        assert_eq!(pieces.concat(), tokenizer.text(&tokens).unwrap(), "{tokens:?}: {pieces:?}");
    }
}
