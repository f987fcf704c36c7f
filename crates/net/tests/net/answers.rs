//! How long a site keeps an answer that may have got lost.

use fedra_engine::EvaluationSet;
use fedra_net::{Asked, ClientNode, Message, Request};
use fedra_plan::Round;

use crate::world::World;

/// A request of which only the number is looked at while the answer is there.
fn again(id: u64) -> Message {
    Message { id, meta: bytes::Bytes::from_static(b"lost on its way"), payloads: Vec::new() }
}

#[test]
fn an_answer_stays_until_another_question_is_announced() {
    let (world, folder) = (World::new(2), tempfile::tempdir().unwrap());
    let mut site = ClientNode::new(world.client(0), World::agreement(), folder.path()).unwrap();
    let (on, round) = (EvaluationSet::ClientValidation, Round(0));
    let request = Request::Evaluate { on, adapt: None, round, seed: 1, split: None };
    let meta = serde_json::to_vec(&Asked { base: None, request }).unwrap().into();
    let answer = site.answer(&Message { id: 7, meta, payloads: Vec::new() }).unwrap();
    assert!(answer.is_some());
    // It is asked for, with or without others; or nothing else is asked that has a number.
    for announced in [&[7][..], &[0, 7], &[7, 8], &[0], &[]] {
        site.expect(announced);
        assert_eq!(site.answer(&again(7)).unwrap(), answer, "{announced:?}");
    }
    site.expect(&[0, 8]);
    site.answer(&again(7)).unwrap_err();
}
