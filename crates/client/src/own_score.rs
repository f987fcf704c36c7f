//! A model's scores on examples, and beside them its answers, for code of a program that scores these itself.

use fedra_compute::Params;
use fedra_engine::{EngineError, OwnAnswers, OwnParts, OwnTruth, Scored};
use fedra_wire::ClientId;

use crate::error::{ClientError, Result};
use crate::evaluator::Evaluator;
use crate::examination::{Examined, Truth};
use crate::examples::Examples;
use crate::meter::Meter;

impl Evaluator<'_> {
    /// Scores the parameters on examples, by code of a program too where there is some that does.
    pub fn judged(
        &self,
        params: &Params,
        (examples, client): (&Examples, Option<ClientId>),
        (own, meter): (Option<&dyn OwnParts>, &Meter<'_>),
    ) -> Result<Scored, EngineError> {
        let failed = |error: ClientError| error.of_fleet("evaluate the model");
        let Some(own) = own.filter(|own| own.makes().score) else {
            let scores = self.score_counted(params, examples, meter).map_err(failed)?;
            return Ok(scores.scored(client));
        };
        let (scored, answers) = self.answered(params, (examples, client), meter).map_err(failed)?;
        own.judge(scored, answers)
    }

    /// Scores the parameters on examples, with all that was answered to them.
    pub(crate) fn answered(
        &self,
        params: &Params,
        (examples, client): (&Examples, Option<ClientId>),
        meter: &Meter<'_>,
    ) -> Result<(Scored, OwnAnswers)> {
        let labels = self.labels.len();
        let (mut one, mut several, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
        let mut each = |examined: Examined| {
            match examined.truth {
                Truth::Class(class) => one.push(i64::from(class)),
                Truth::Words(tags) => one.extend(tags.into_iter().map(i64::from)),
                Truth::Codes(codes) => {
                    let is_right = |label| u8::from(codes.contains(&label));
                    several.extend((0..labels as u32).map(is_right));
                }
            }
            probabilities.extend(examined.probabilities.into_iter().flatten());
        };
        let scores = self.examine_counted(params, examples, (meter, &mut each))?;
        let truth =
            if several.is_empty() { OwnTruth::One(one) } else { OwnTruth::Several(several) };
        Ok((scores.scored(client), OwnAnswers { truth, probabilities, labels }))
    }
}
