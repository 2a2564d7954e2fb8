//! Outputs of a job, shared by its queries, and the assembly of rows into a response.

use std::sync::Arc;

use parking_lot::Mutex;
use parm_protocol::{
    Error, InferResponse, ModelMetadata, NamedTensor, OpaqueAnswer, Parameter, Parameters, RequestedOutput,
    Tensor, texts,
};
use smallvec::SmallVec;

use super::call::Output;
use super::inputs::Inputs;
use super::pool::Pool;

/// An instance's response to a job.
pub(crate) struct Outputs {
    pub(crate) tensors: Vec<NamedTensor>,
    pub(crate) parameters: Parameters,
    pub(crate) rows: usize,
    /// An upstream server's answer, until it is given; `tensors` is then empty.
    pub(crate) opaque: Mutex<Option<Box<OpaqueAnswer>>>,
}

/// Answer to one query.
pub(super) type RowAnswer = (Outcome, Output);

/// Answers to a request, in row order.
pub(super) type Answers = SmallVec<[RowAnswer; 1]>;

impl Outputs {
    /// Checks that an instance returned all requested outputs for every row.
    pub(crate) fn check(response: InferResponse, expected: &Expected<'_>) -> Result<Self, Error> {
        let Expected { instance, model, wanted, batched, rows } = *expected;
        let wrong = |what: String| Err(Error::Internal { message: format!("instance {instance} {what}") });
        if let Some(outcome) = response.parameters.get(OUTCOME).and_then(Parameter::as_str)
            && ![Outcome::Exact.name(), Outcome::Hedged.name()].contains(&outcome)
        {
            return wrong(format!(
                "returned an approximate answer ({outcome}): servers have to return predictions"
            ));
        }
        for declared in &model.outputs {
            match response.outputs.iter().find(|output| output.name == declared.name) {
                None if is_wanted(wanted, &declared.name) => {
                    return wrong(format!("did not return output '{}'", declared.name));
                }
                Some(output) if batched && output.tensor.rows() != rows => {
                    return wrong(format!(
                        "returned {} rows of '{}', expected {rows}: list the model in frontend.unbatched if its first dimension \
                         is not a batch",
                        output.tensor.rows(),
                        output.name
                    ));
                }
                _ => {}
            }
        }
        let (tensors, parameters) = (response.outputs, response.parameters);
        Ok(Self { tensors, parameters, rows, opaque: Mutex::default() })
    }

    /// Outputs of one row without parameters.
    pub(crate) fn row(tensors: Vec<NamedTensor>) -> Self {
        Self { tensors, parameters: Parameters::new(), rows: 1, opaque: Mutex::default() }
    }

    /// One row of an output; the whole of one without rows.
    pub(crate) fn row_named(&self, name: &str, row: usize, batched: bool) -> Option<Tensor> {
        let output = self.tensors.iter().find(|output| output.name == name)?;
        if !batched || output.tensor.rows() == 1 {
            return Some(output.tensor.clone());
        }
        output.tensor.slice_rows(row, 1).ok()
    }

    /// An upstream server's answer.
    pub(crate) fn opaque(answer: OpaqueAnswer) -> Self {
        let opaque = Mutex::new(Some(Box::new(answer)));
        Self { opaque, ..Self::row(Vec::new()) }
    }
}

/// Whether a request wants an output; one that names none wants all.
pub(crate) fn is_wanted(wanted: &[RequestedOutput], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|output| output.name == name)
}

/// Requirements on a job's response.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) instance: &'a str,
    pub(crate) model: &'a ModelMetadata,
    pub(crate) wanted: &'a [RequestedOutput],
    pub(crate) batched: bool,
    pub(crate) rows: usize,
}

/// Builds the response to a request. Returns it with the worst outcome.
pub(super) fn response(
    pool: &Pool,
    inputs: &Inputs,
    answers: Answers,
) -> Result<(Outcome, InferResponse), Error> {
    let worst = answers.iter().map(|(outcome, _)| *outcome).max().unwrap_or(Outcome::Exact);
    let mut parameters = parameters(&answers, worst);
    let of_one = answers.iter().all(|(_, own)| Arc::ptr_eq(&own.outputs, &answers[0].1.outputs));
    let own = |(name, _): &(String, Parameter)| !name.starts_with("parm_");
    parameters.extend(agreed(answers.iter().map(|(_, own)| &own.outputs.parameters)).into_iter().filter(own));
    let wanted: SmallVec<[&str; 4]> = pool
        .metadata
        .outputs
        .iter()
        .map(|declared| declared.name.as_str())
        .filter(|name| is_wanted(&inputs.outputs, name))
        .collect();
    let mut outputs = if of_one && is_whole(pool, &answers) {
        wanted.iter().try_for_each(|name| output(&answers[0], name).map(drop))?;
        whole(answers)
    } else {
        gathered(&answers, &wanted)?
    };
    outputs.retain(|output| is_wanted(&inputs.outputs, &output.name));
    let response = InferResponse {
        model_name: pool.model.name.clone(),
        model_version: pool.version.clone(),
        id: inputs.id.clone(),
        parameters,
        outputs,
    };
    Ok((worst, response))
}

/// `parm_outcome` is the worst of the rows; if they differ, `parm_outcomes` lists them in row order.
fn parameters(answers: &[RowAnswer], worst: Outcome) -> Parameters {
    let mut parameters = Parameters::new();
    parameters.insert(OUTCOME.into(), worst.name().into());
    if answers.iter().any(|(outcome, _)| *outcome != worst) {
        let all: Vec<&str> = answers.iter().map(|(outcome, _)| outcome.name()).collect();
        parameters.insert("parm_outcomes".into(), all.join(",").as_str().into());
    }
    // The least confident row represents the request, like the worst outcome.
    if let Some(confidence) = answers.iter().filter_map(|(_, own)| own.confidence).min_by(f32::total_cmp) {
        parameters.insert("parm_confidence".into(), f64::from(confidence).into());
    }
    if let Some(group) = answers.iter().find_map(|(_, own)| own.group) {
        parameters.insert("parm_group".into(), group.into());
    }
    if let Some(rows) = tokens(answers) {
        texts::set_tokens(&mut parameters, rows.into_iter());
    }
    parameters
}

/// The tokens that text models read of each row; `None` unless all are counted.
fn tokens(answers: &[RowAnswer]) -> Option<Vec<u64>> {
    // One job often answers many rows: its list is read once.
    let (mut of, mut listed) = (None, Vec::new());
    let count = |(_, Output { outputs, row, .. }): &RowAnswer| {
        if of != Some(Arc::as_ptr(outputs)) {
            listed = texts::tokens(&outputs.parameters)?;
            of = Some(Arc::as_ptr(outputs));
        }
        listed.get(*row).copied()
    };
    answers.iter().map(count).collect()
}

/// Whether the answers are all rows of their job, in order.
fn is_whole(pool: &Pool, answers: &[RowAnswer]) -> bool {
    let in_order = answers.iter().enumerate().all(|(row, (_, own))| own.row == row);
    let outputs = &answers[0].1.outputs;
    in_order && (!pool.batched || outputs.rows == answers.len())
}

fn whole(answers: Answers) -> Vec<NamedTensor> {
    let mut answers = answers.into_iter();
    let Some((_, first)) = answers.next() else { return Vec::new() };
    drop(answers); // the last owner takes the tensors, others copy the handles
    Arc::try_unwrap(first.outputs).map_or_else(|shared| shared.tensors.clone(), |own| own.tensors)
}

/// The requested outputs; jobs may have returned more, for other requests.
fn gathered(answers: &[RowAnswer], wanted: &[&str]) -> Result<Vec<NamedTensor>, Error> {
    wanted.iter().map(|name| gather(answers, name)).collect()
}

fn gather(answers: &[RowAnswer], name: &str) -> Result<NamedTensor, Error> {
    let found = answers.iter().map(|answer| output(answer, name)).collect::<Result<Vec<_>, _>>()?;
    let rows = answers.iter().zip(&found).map(|((_, own), output)| output.tensor.slice_rows(own.row, 1));
    let tensor =
        Tensor::concat_rows(&rows.collect::<Result<Vec<_>, _>>()?).map_err(|error| unequal(name, error))?;
    let parameters = agreed(found.iter().map(|output| &output.parameters));
    Ok(NamedTensor { name: name.to_owned(), tensor, parameters })
}

/// The error of rows that ran apart and have outputs of different shapes, which is not the client's fault.
fn unequal(name: &str, error: Error) -> Error {
    match error {
        Error::RowShapeMismatch { expected, actual } => Error::Internal {
            message: format!(
                "rows of output '{name}' have different shapes, {expected:?} and {actual:?}, because they ran apart: \
                 list the model in frontend.unbatched, or send one row a request"
            ),
        },
        other => other,
    }
}

/// The parameters that all parts of an answer have with the same value. Others hold for some of its rows only.
fn agreed<'a>(all: impl Iterator<Item = &'a Parameters> + Clone) -> Parameters {
    let mut agreed = all.clone().next().cloned().unwrap_or_default();
    agreed.retain(|name, value| all.clone().all(|other| other.get(name) == Some(value)));
    agreed
}

/// An output of an answer. A missing output is an error, because a shorter tensor would look like an answer.
fn output<'a>((outcome, own): &'a RowAnswer, name: &str) -> Result<&'a NamedTensor, Error> {
    let found = own.outputs.tensors.iter().find(|output| output.name == name);
    found.ok_or_else(|| Error::Internal {
        message: format!("an answer ({}) lacks output '{name}': please report this bug", outcome.name()),
    })
}

/// The parameter of answers that names their outcome.
pub(crate) const OUTCOME: &str = "parm_outcome";

/// Outcomes from best to worst: a request of several rows is labelled with its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The deployed model's prediction.
    Exact,
    /// The deployed model's prediction, by a hedge.
    Hedged,
    /// Decoded from a parity.
    Reconstructed,
    /// The stand-in's prediction.
    StandIn,
    /// The backup model's prediction.
    Backup,
    /// The model's configured default answer.
    Default,
}

impl Outcome {
    /// All outcomes, in order.
    pub const ALL: [Outcome; 6] = [
        Outcome::Exact,
        Outcome::Hedged,
        Outcome::Reconstructed,
        Outcome::StandIn,
        Outcome::Backup,
        Outcome::Default,
    ];

    /// The value of `parm_outcome`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Exact => "exact",
            Outcome::Hedged => "hedged",
            Outcome::Reconstructed => "reconstructed",
            Outcome::StandIn => "stand-in",
            Outcome::Backup => "backup",
            Outcome::Default => "default",
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::Code;

    use super::*;

    #[test]
    fn missing_output_of_a_row_is_an_error() {
        let answer = |names: &[&str], outcome| {
            let tensor = || Tensor::from_f32([1, 1].as_slice(), &[1.0]).unwrap();
            let tensors = names.iter().map(|name| NamedTensor::new(*name, tensor())).collect();
            (outcome, Output::of(Arc::new(Outputs::row(tensors)), 0))
        };
        let answers = [answer(&["y", "z"], Outcome::Exact), answer(&["y"], Outcome::Backup)];
        assert_eq!(gathered(&answers, &["y"]).unwrap()[0].tensor.rows(), 2);
        let error = gathered(&answers, &["y", "z"]).unwrap_err().to_string();
        assert!(error.contains("(backup) lacks output 'z'"), "{error}");
    }

    #[test]
    fn approximate_answer_of_another_frontend_is_an_error() {
        let answer = |outcome: Option<&str>| {
            let mut answer = InferResponse::default();
            outcome
                .into_iter()
                .for_each(|outcome| drop(answer.parameters.insert(OUTCOME.into(), outcome.into())));
            let model = ModelMetadata::default();
            let expected = Expected { instance: "a", model: &model, wanted: &[], batched: true, rows: 1 };
            Outputs::check(answer, &expected).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!([None, Some("exact"), Some("hedged")].map(answer), [const { Ok(()) }; 3]);
        let error = answer(Some("stand-in")).unwrap_err();
        assert!(error.contains("an approximate answer (stand-in)"), "{error}");
    }

    #[test]
    fn tokens_are_those_of_the_rows_own_jobs() {
        let job = |listed: Option<&[u64]>| {
            let mut outputs = Outputs::row(Vec::new());
            if let Some(listed) = listed {
                texts::set_tokens(&mut outputs.parameters, listed.iter().copied());
            }
            Arc::new(outputs)
        };
        let answer = |outputs: &Arc<Outputs>, row, outcome| (outcome, Output::of(outputs.clone(), row));
        let (one, other, uncounted) = (job(Some(&[5, 6, 7])), job(Some(&[9])), job(None));
        let listed = |answers: &[RowAnswer]| texts::tokens(&parameters(answers, Outcome::Exact));
        let answers = [
            answer(&one, 2, Outcome::Exact),
            answer(&other, 0, Outcome::StandIn),
            answer(&one, 0, Outcome::Exact),
        ];
        assert_eq!(listed(&answers), Some(vec![7, 9, 5]));
        assert_eq!(listed(&[answer(&one, 0, Outcome::Exact), answer(&uncounted, 0, Outcome::Exact)]), None);
        assert_eq!(listed(&[answer(&other, 1, Outcome::Exact)]), None, "a list that is too short");
    }

    #[test]
    fn rows_of_different_shapes_are_no_fault_of_the_client() {
        let answer = |length: usize| {
            let tensor = Tensor::from_f32([1, length].as_slice(), &vec![1.0; length]).unwrap();
            (Outcome::Exact, Output::of(Arc::new(Outputs::row(vec![NamedTensor::new("y", tensor)])), 0))
        };
        let error = gathered(&[answer(2), answer(3)], &["y"]).unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.to_string().contains("frontend.unbatched"), "{error}");
    }

    #[test]
    fn parameters_stay_where_all_parts_agree() {
        let answer = |run: u64| {
            let tensor = Tensor::from_f32([1, 1].as_slice(), &[1.0]).unwrap();
            let parameters =
                [("content_type".to_owned(), "np".into()), ("run".to_owned(), run.into())].into();
            let tensors = vec![NamedTensor { name: "y".into(), tensor, parameters }];
            (Outcome::Exact, Output::of(Arc::new(Outputs::row(tensors)), 0))
        };
        let kept = |answers: &[RowAnswer]| gathered(answers, &["y"]).unwrap()[0].parameters.clone();
        let content: Parameters = [("content_type".to_owned(), "np".into())].into();
        assert_eq!(kept(&[answer(1), answer(2)]), content);
        assert_eq!(kept(&[answer(1), answer(1)]).len(), 2);
    }
}
