//! The unanswered queries: when each arrived, and its number.

use parm_dispatch::QueryId;
use parm_workload::clock::Moment;

/// Queries by identifier. An identifier is a place and how often it was used, so that none is given twice and the
/// identifier of an answered query finds nothing.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    uses: u32,
    query: Query,
}

/// An unanswered query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) arrived: Moment,
    /// Counted from 0 in order of arrival.
    pub(crate) number: u64,
}

impl InFlight {
    pub(crate) fn add(&mut self, query: Query) -> QueryId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, query });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.query = query;
        QueryId(u64::from(place.uses) << 32 | u64::from(index))
    }

    /// Removes an answered query.
    pub(crate) fn remove(&mut self, id: QueryId) -> Option<Query> {
        let index = id.0 as u32;
        let place = self.places.get_mut(index as usize)?;
        if u64::from(place.uses) != id.0 >> 32 {
            return None;
        }
        place.uses += 1;
        self.free.push(index);
        Some(place.query)
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
    }
}
