//! The server's sessions: one batch for all, each on its own, and nothing a stranger can learn.

use crate::tiny::{LONGEST, Tiny, WIDTH, bits, key, rows, step};
use fedra_client::generate::{Answer, DecodeSessions, SessionError, SessionKey, SessionLimits};
use fedra_plan::{Layer, ParamId, Part, Role};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn sessions() -> DecodeSessions {
    Tiny::new().sessions(1, 1, SessionLimits::default())
}

fn open(sessions: &mut DecodeSessions, keys: &[SessionKey]) -> Instant {
    let now = Instant::now();
    for key in keys {
        sessions.open(key, now).unwrap();
    }
    now
}

#[test]
fn sessions_decoded_together_have_the_bits_of_sessions_decoded_alone() {
    let keys: Vec<_> = (0..12).map(|id| key("a", id)).collect();
    let (mut together, mut alone) = (sessions(), sessions());
    let now = open(&mut together, &keys);
    open(&mut alone, &keys);
    // Prompts of different lengths, then tokens in an order that changes.
    for (number, key) in keys.iter().enumerate() {
        let prompt = step(key, 0, rows(number as u64, 1 + 3 * number));
        together.decode(&prompt, now).unwrap();
        alone.decode(&prompt, now).unwrap();
    }
    for round in 0..4 {
        let mut steps: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(number, key)| {
                step(key, 1 + 3 * number + round, rows(100 + (number * 9 + round) as u64, 1))
            })
            .collect();
        steps.rotate_left(3 * round);
        let expected: Vec<_> = steps.iter().map(|step| alone.decode(step, now).unwrap()).collect();
        let found = together.decode_many(&steps, now);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(bits(found.as_ref().unwrap()), bits(expected));
        }
    }
}

#[test]
fn a_bad_step_fails_alone_and_leaves_every_session_as_it_was() {
    let keys: Vec<_> = (0..9).map(|id| key("a", id)).collect();
    let mut all = sessions();
    let now = open(&mut all, &keys);
    for key in &keys {
        all.decode(&step(key, 0, rows(key.id, 2)), now).unwrap();
        all.decode(&step(key, 2, rows(key.id, 2)), now).unwrap();
    }
    let mut broken = rows(1, 1);
    broken[3] = f32::NAN;
    let mut endless = rows(1, 1);
    endless[3] = f32::INFINITY;
    let steps = vec![
        step(&keys[0], 4, rows(50, 1)),
        step(&keys[1], 1, rows(50, 1)),
        step(&keys[2], 5, rows(50, 1)),
        step(&keys[3], 4, broken),
        step(&keys[4], 4, endless),
        step(&keys[5], 4, vec![1.0; WIDTH + 1]),
        step(&keys[6], 4, Vec::new()),
        step(&keys[7], 4, rows(50, LONGEST)),
        step(&key("b", 8), 4, rows(50, 1)),
    ];
    let answers = all.decode_many(&steps, now);
    assert_eq!(answers[0].as_ref().unwrap().len(), WIDTH);
    let words: Vec<String> =
        answers[1..].iter().map(|answer| answer.as_ref().unwrap_err().to_string()).collect();
    let expected = [
        "session 1: found a step at position 1, expected 4",
        "session 2: found a step at position 5, expected 4",
        "session 3: found NaN in row 0 in front of the blocks, expected finite numbers",
        "session 4: found inf in row 0 in front of the blocks, expected finite numbers",
        "session 5: found 33 numbers, expected rows of 32, at least one",
        "session 6: found 0 numbers, expected rows of 32, at least one",
        "session 7: found 100 tokens, expected at most 96",
        "session 8 is not open",
    ];
    assert_eq!(words, expected);
    assert_eq!(all.position(&keys[0], now), Ok(5));
    for key in &keys[1..] {
        assert_eq!(all.position(key, now), Ok(4));
        // And they go on as if nothing had happened.
        let mut fresh = sessions();
        open(&mut fresh, std::slice::from_ref(key));
        fresh.decode(&step(key, 0, rows(key.id, 2)), now).unwrap();
        fresh.decode(&step(key, 2, rows(key.id, 2)), now).unwrap();
        let expected = fresh.decode(&step(key, 4, rows(60, 1)), now).unwrap();
        let found = all.decode(&step(key, 4, rows(60, 1)), now).unwrap();
        assert_eq!(bits(&found), bits(&expected));
    }
}

#[test]
fn the_last_step_may_be_repeated_and_no_older_one() {
    let (mut all, mine) = (sessions(), key("a", 1));
    let now = open(&mut all, std::slice::from_ref(&mine));
    let first = step(&mine, 0, rows(1, 5));
    let answer = all.decode(&first, now).unwrap();
    assert_eq!(bits(&all.decode(&first, now).unwrap()), bits(&answer));
    assert_eq!(all.position(&mine, now), Ok(5));
    let second = step(&mine, 5, rows(2, 1));
    let answer = all.decode(&second, now).unwrap();
    for _ in 0..3 {
        assert_eq!(bits(&all.decode(&second, now).unwrap()), bits(&answer));
    }
    // A prompt that is replayed must not throw away what came after it.
    let refused = all.decode(&first, now).unwrap_err();
    assert_eq!(refused.to_string(), "session 1: found a step at position 0, expected 6");
    assert_eq!(all.position(&mine, now), Ok(6));
}

#[test]
fn two_steps_of_one_session_in_one_call_run_in_order() {
    let (mut all, mine, other) = (sessions(), key("a", 1), key("a", 2));
    let now = open(&mut all, &[mine.clone(), other.clone()]);
    let steps = vec![
        step(&mine, 0, rows(1, 1)),
        step(&other, 0, rows(2, 1)),
        step(&mine, 1, rows(3, 1)),
        step(&mine, 3, rows(4, 1)),
    ];
    let answers = all.decode_many(&steps, now);
    assert!(answers[..3].iter().all(Result::is_ok));
    let refused = answers[3].as_ref().unwrap_err().to_string();
    assert_eq!(refused, "session 1: found a step at position 3, expected 2");
}

#[test]
fn an_answer_of_the_last_row_is_the_last_row() {
    let (mut all, mine) = (sessions(), key("a", 1));
    let now = open(&mut all, std::slice::from_ref(&mine));
    let mut asked = step(&mine, 0, rows(1, 5));
    let every = all.decode(&asked, now).unwrap();
    asked.answer = Answer::Last;
    let last = all.decode(&asked, now).unwrap();
    assert_eq!(bits(&last), bits(&every[4 * WIDTH..]));
}

#[test]
fn a_stranger_cannot_tell_a_session_of_another_from_none() {
    let (mut all, mine) = (sessions(), key("a", 1));
    let now = open(&mut all, std::slice::from_ref(&mine));
    all.decode(&step(&mine, 0, rows(1, 3)), now).unwrap();
    for id in [1, 2] {
        let theirs = key("b", id);
        let none = SessionError::Unknown { id };
        assert_eq!(all.position(&theirs, now), Err(none.clone()));
        assert_eq!(all.close(&theirs), Err(none.clone()));
        for position in [0, 3] {
            let asked = step(&theirs, position, rows(1, 1));
            assert_eq!(all.decode(&asked, now), Err(none.clone()));
        }
    }
    // The same number is free for another owner, and the two do not meet.
    all.open(&key("b", 1), now).unwrap();
    assert_eq!(all.position(&key("b", 1), now), Ok(0));
    assert_eq!(all.position(&mine, now), Ok(3));
    assert_eq!(all.open(&mine, now), Err(SessionError::open(1)));
}

#[test]
fn sessions_that_rest_too_long_are_dropped_and_used_ones_stay() {
    let limits = SessionLimits { idle: Duration::from_mins(1), ..SessionLimits::default() };
    let mut all = Tiny::new().sessions(1, 1, limits);
    let (used, resting) = (key("a", 1), key("a", 2));
    let start = open(&mut all, &[used.clone(), resting.clone()]);
    all.decode(&step(&resting, 0, rows(1, 3)), start).unwrap();
    let later = start + Duration::from_secs(40);
    all.decode(&step(&used, 0, rows(1, 1)), later).unwrap();
    assert_eq!(all.expire(start + Duration::from_mins(1)), []);
    let held = all.bytes();
    assert_eq!(all.expire(start + Duration::from_secs(61)), std::slice::from_ref(&resting));
    assert!(all.bytes() < held);
    let now = start + Duration::from_secs(62);
    assert_eq!(all.position(&resting, now), Err(SessionError::Unknown { id: 2 }));
    assert_eq!(all.position(&used, now), Ok(1));
    all.close(&used).unwrap();
    assert_eq!((all.count(), all.bytes()), (0, 0));
}

#[test]
fn limits_hold_for_sessions_of_one_owner_of_all_for_bytes_and_for_length() {
    let limits = SessionLimits {
        per_owner: 2,
        total: 3,
        context: 20,
        cache_bytes: 2 * 2 * 2 * 16 * 4 * 20, // two blocks' keys and values of 20 tokens with room
        ..SessionLimits::default()
    };
    let mut all = Tiny::new().sessions(1, 1, limits);
    let now = open(&mut all, &[key("a", 1), key("a", 2), key("b", 1)]);
    let refused = |all: &mut DecodeSessions, owner| all.open(&key(owner, 9), now).unwrap_err();
    for (owner, whose, limit) in [("a", "your", 2), ("b", "all", 3)] {
        let expected = format!(
            "{whose} sessions: found {limit} open, expected fewer than {limit}; close one or wait"
        );
        assert_eq!(refused(&mut all, owner), SessionError::Busy(expected));
    }
    let refused = all.decode(&step(&key("a", 1), 0, rows(1, 21)), now).unwrap_err();
    assert_eq!(refused.to_string(), "session 1: found 21 tokens, expected at most 20");
    all.decode(&step(&key("a", 1), 0, rows(1, 12)), now).unwrap();
    let refused = all.decode(&step(&key("b", 1), 0, rows(1, 12)), now).unwrap_err();
    let SessionError::Busy(reason) = refused else { panic!("{refused}") };
    assert!(reason.starts_with("session 1: ") && reason.contains(" bytes of caches"), "{reason}");
    assert!(all.bytes() <= limits.cache_bytes);
    assert_eq!(all.position(&key("b", 1), now), Ok(0));
    // Room that is given back can be used.
    all.close(&key("a", 1)).unwrap();
    all.decode(&step(&key("b", 1), 0, rows(1, 12)), now).unwrap();
}

#[test]
fn an_open_session_takes_memory_only_as_rows_come() {
    let mut all = sessions();
    let now = open(&mut all, &(0..16).map(|id| key("a", id)).collect::<Vec<_>>());
    assert_eq!(all.bytes(), 0);
    all.decode(&step(&key("a", 0), 0, rows(1, 10)), now).unwrap();
    let row = 2 * 2 * 16 * 4; // two blocks, keys and values of two heads of eight, f32
    assert!((10 * row..=24 * row).contains(&all.bytes()), "{}", all.bytes());
}

#[test]
fn a_step_whose_result_is_no_number_is_undone() {
    let mut tiny = Tiny::new();
    let down = ParamId::new(Layer::Block(2), Role::Down, Part::Weight);
    tiny.params.get_mut(down).unwrap().scale(1e30);
    tiny.params.get_mut(down).unwrap().scale(1e10);
    let mut all = tiny.sessions(1, 1, SessionLimits::default());
    let now = open(&mut all, &[key("a", 1), key("a", 2)]);
    let steps = vec![step(&key("a", 1), 0, rows(1, 1)), step(&key("a", 2), 0, rows(2, 3))];
    for (answer, id) in all.decode_many(&steps, now).into_iter().zip([1, 2]) {
        let words = answer.unwrap_err().to_string();
        assert!(words.ends_with("behind the blocks, expected finite numbers"), "{words}");
        assert_eq!(all.position(&key("a", id), now), Ok(0));
    }
}

#[test]
fn a_server_keeps_the_weights_of_its_own_blocks_only() {
    let layers: BTreeSet<Layer> = sessions().params.iter().map(|(id, _)| id.layer).collect();
    assert_eq!(layers, [Layer::Block(1), Layer::Block(2)].into());
}
