//! The unanswered queries: when each arrived, and its number.

use parm_dispatch::QueryId;
use parm_workload::clock::Moment;

/// Queries by identifier. An identifier is a query's number and its place, so that none is given twice, the identifier of
/// an answered query finds nothing, and the number of an answered query is known: jobs of it can still begin.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    places: Vec<Option<Query>>,
    free: Vec<u32>,
}

/// An unanswered query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) arrived: Moment,
    /// Counted from 0 in order of arrival.
    pub(crate) number: u64,
}

/// Bits of a place: more unanswered queries than these fit into no memory.
const PLACE_BITS: u32 = 28;

/// Returns the number of a query, answered or not.
pub(crate) fn number(id: QueryId) -> u64 {
    id.0 >> PLACE_BITS
}

impl InFlight {
    pub(crate) fn add(&mut self, query: Query) -> QueryId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[index as usize] = Some(query);
        QueryId(query.number << PLACE_BITS | u64::from(index))
    }

    /// Returns when an unanswered query arrived.
    pub(crate) fn arrived(&self, id: QueryId) -> Option<Moment> {
        let index = (id.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let query = (*self.places.get(index)?)?;
        (query.number == number(id)).then_some(query.arrived)
    }

    /// Removes an answered query.
    pub(crate) fn remove(&mut self, id: QueryId) -> Option<Query> {
        let index = (id.0 & ((1 << PLACE_BITS) - 1)) as u32;
        let place = self.places.get_mut(index as usize)?;
        let query = place.take_if(|query| query.number == number(id))?;
        self.free.push(index);
        Some(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_reused_and_identifiers_are_not() {
        let query = |number| Query { arrived: Moment::START, number };
        let mut queries = InFlight::default();
        let first = queries.add(query(0));
        assert_eq!(queries.remove(first), Some(query(0)));
        let second = queries.add(query(1));
        assert_ne!(first, second);
        assert_eq!((queries.remove(first), queries.remove(second)), (None, Some(query(1))));
        assert_eq!((queries.places.len(), queries.free.len()), (1, 1));
        assert_eq!([first, second].map(number), [0, 1], "answered queries keep their numbers");
    }
}
