//! What was not loaded as the folder stores it, as values and in words.
//!
//! A line stands for a group, because a person wants to know that the head is new and why, not read
//! forty names of tensors.

use fedra_plan::{Layer, ParamId, Part, Role, Shape};

use crate::classifier::Classifier;
use crate::hf::checkpoint::{Found, Ignored, Reason};
use crate::model::Model;

/// How many names of a group are shown.
const SHOWN: usize = 4;

/// What was reinitialised, and what was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Parameters that were reinitialised: a head, adapters.
    pub fresh: Vec<Fresh>,
    /// Tensors of the folder that the model has no use for, each with the reason.
    pub ignored: Vec<Ignored>,
    /// Where the rows of a classification head came from.
    pub classifier: Classifier,
}

/// A parameter that was reinitialised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// Which one.
    pub id: ParamId,
    /// Its name in a saved folder.
    pub tensor: String,
    /// Its shape.
    pub shape: Shape,
}

impl LoadReport {
    pub(crate) fn new(model: &Model, found: Found, classifier: Classifier) -> Self {
        let class = model.head().architecture(model.config()).ok();
        let name = |id: ParamId| {
            class.and_then(|class| class.tensor_name(id)).unwrap_or_else(|| id.to_string())
        };
        let fresh = |id| Some(Fresh { id, tensor: name(id), shape: *model.layout().get(id)? });
        let fresh = found.fresh.into_iter().filter_map(fresh).collect();
        Self { fresh, ignored: found.ignored, classifier }
    }

    /// A line for each group, for people to read; adapters, which are always fresh, have none.
    ///
    /// ```text
    /// reinitialised: classifier.weight, classifier.bias (the head is 16 x 384, the folder has 2 x 384)
    /// ignored: embeddings.position_ids (a computed constant)
    /// ```
    pub fn lines(&self) -> Vec<String> {
        let mut drawn = Groups::default();
        let adapter = |fresh: &&Fresh| fresh.id.part.is_adapter();
        for fresh in self.fresh.iter().filter(|fresh| !adapter(fresh)) {
            drawn.add(&fresh.tensor, self.why_fresh(fresh));
        }
        let mut aside = Groups::default();
        for ignored in &self.ignored {
            let why = match &ignored.reason {
                Reason::Buffer => "a computed constant".to_owned(),
                Reason::OtherHead => "a head of another task".to_owned(),
                Reason::Unread => "used in pre-training only".to_owned(),
                Reason::UnwantedHead(_) => "a head that this task does not use".to_owned(),
                Reason::Copy(id) => format!("an equal copy of {id}"),
                // The line about what took its place has the reason.
                Reason::OtherShape { .. } | Reason::OtherMeaning(_) => continue,
            };
            aside.add(&ignored.tensor, why);
        }
        drawn.lines("reinitialised").chain(aside.lines("ignored")).collect()
    }

    /// A bias is reinitialised with its weight and for the same reason.
    fn why_fresh(&self, fresh: &Fresh) -> String {
        let is_classifier = fresh.id.layer == Layer::Head && fresh.id.role == Role::Classifier;
        if let Classifier::Fresh(why) = &self.classifier
            && is_classifier
        {
            return why.to_string();
        }
        let weight = ParamId { part: Part::Weight, ..fresh.id };
        let stored = self.ignored.iter().find_map(|ignored| {
            if let Reason::OtherShape { id, stored } = &ignored.reason {
                (*id == weight).then_some(stored)
            } else {
                None
            }
        });
        let ours = self.fresh.iter().find(|fresh| fresh.id == weight);
        match (stored, ours) {
            (Some(stored), Some(ours)) if stored == ours.shape.dims() => {
                "the folder's is not stored as F32, F16 or BF16".to_owned()
            }
            (Some(stored), Some(ours)) => {
                let ours = in_words(ours.shape.dims());
                format!("the head is {ours}, the folder has {}", in_words(stored))
            }
            (None, _) | (_, None) => "the folder has none".to_owned(),
        }
    }
}

/// Names grouped by the reason given for them, in the order in which reasons first appeared.
#[derive(Default)]
struct Groups<'a>(Vec<(String, Vec<&'a str>)>);

impl<'a> Groups<'a> {
    fn add(&mut self, name: &'a str, why: String) {
        match self.0.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => self.0.push((why, vec![name])),
        }
    }

    fn lines(self, what: &str) -> impl Iterator<Item = String> {
        self.0.into_iter().map(move |(why, names)| {
            let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(SHOWN);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("{what}: {shown}{more} ({why})")
        })
    }
}

/// `16 x 384`.
fn in_words(dims: &[usize]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ")
}
