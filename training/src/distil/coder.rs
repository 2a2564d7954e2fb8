//! Encodes groups to parity queries, with the code that serves.

use parm_encoder::{Code, CodeSpec, Input, Members, Workspace};

use crate::groups::BLANK;
use crate::{Array, Error};

/// Encodes batches of groups.
pub(crate) struct Coder {
    code: Box<dyn Code>,
    dims: Vec<usize>,
    coded: Vec<usize>,
    workspace: Workspace,
}

impl Coder {
    /// For queries with dimensions `dims`.
    pub(crate) fn new(spec: &CodeSpec, dims: &[usize]) -> Result<Self, Error> {
        let code = spec.build()?;
        let coded = code.parity_dims(Input::floats(dims))?;
        Ok(Self { code, dims: dims.into(), coded, workspace: Workspace::default() })
    }

    pub(crate) fn code(&self) -> &dyn Code {
        &*self.code
    }

    /// The parity queries of some groups, one array per parity; `members` are rows of `rows`, k per group.
    pub(crate) fn encode(&mut self, rows: &[f32], members: &[u32]) -> Result<Vec<Array<f32>>, Error> {
        let (k, parities) = (self.code.recovery().k, self.code.recovery().parities);
        let (row, coded) = (self.dims.iter().product::<usize>(), self.coded.iter().product::<usize>());
        let groups = members.len() / k;
        let mut out = vec![vec![0.0; groups * coded]; parities];
        let mut written: Vec<_> = out.iter_mut().map(|out| out.chunks_exact_mut(coded)).collect();
        let mut queries = Vec::with_capacity(k);
        for group in members.chunks_exact(k) {
            queries.clear();
            let query = |&member: &u32| (member != BLANK).then(|| &rows[member as usize * row..][..row]);
            queries.extend(group.iter().map(query));
            let members = Members { input: Input::floats(&self.dims), queries: &queries };
            let mut parities: Vec<&mut [f32]> = written.iter_mut().filter_map(Iterator::next).collect();
            self.code.encode(members, &mut parities, &mut self.workspace)?;
        }
        let shape: Vec<usize> = [groups].into_iter().chain(self.coded.iter().copied()).collect();
        let wrap = |data| Array::new(shape.clone(), data).expect("a parity query for each group");
        Ok(out.into_iter().map(wrap).collect())
    }
}
