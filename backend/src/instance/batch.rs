//! Combines several requests into one run, and splits its outputs.

use parm_protocol::{Error, Tensor};

use super::Job;

/// The inputs of all jobs, stacked. The inputs of a single job are passed on without a copy.
pub(super) fn stack(jobs: &[Job]) -> Result<Vec<Tensor>, Error> {
    let [first, ..] = jobs else {
        return Err(Error::NothingToConcatenate);
    };
    let stacked = |at: usize| {
        let parts: Vec<Tensor> = jobs.iter().filter_map(|job| job.inputs.get(at).cloned()).collect();
        Tensor::concat_rows(&parts)
    };
    (0..first.inputs.len()).map(stacked).collect()
}

/// Each job's rows of the outputs. An error if the number of rows differs from that of the inputs: the model's first
/// dimension is then not a batch.
pub(super) fn split(outputs: &[Tensor], rows: &[usize]) -> Result<Vec<Vec<Tensor>>, Error> {
    let total: usize = rows.iter().sum();
    if let Some(odd) = outputs.iter().find(|output| output.rows() != total) {
        return Err(Error::RowsOutOfRange { start: 0, count: total, rows: odd.rows() });
    }
    let mut start = 0;
    let part = |&count: &usize| {
        let part = outputs.iter().map(|output| output.slice_rows(start, count)).collect();
        start += count;
        part
    };
    rows.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_split_in_the_order_of_the_jobs() {
        let output = Tensor::from_f32([3, 1].as_slice(), &[1., 2., 3.]).unwrap();
        let parts = split(std::slice::from_ref(&output), &[2, 1]).unwrap();
        assert_eq!(parts, [[output.slice_rows(0, 2).unwrap()], [output.slice_rows(2, 1).unwrap()]]);
        let error = Error::RowsOutOfRange { start: 0, count: 4, rows: 3 };
        assert_eq!(split(&[output], &[2, 2]), Err(error));
    }
}
