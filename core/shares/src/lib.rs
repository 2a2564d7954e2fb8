//! Weighted fair shares of instances' time: who is served next where several wait.
//!
//! Problem: instances that serve whoever came first belong to whoever asks most. Four instances, a model of 100 ms that 64
//! clients ask without a pause, and one of 5 ms that is asked now and then: each of the latter's queries waits behind 64
//! others, for 1.6 s.
//!
//! Choice: start-time fair queueing, in measured time. Every share has a place on a clock of its own making: each job
//! moves it on by what the job took, divided by the share's weight. The share that is farthest back is served next, and
//! the clock follows the farthest of those that wait. A share that had nothing to ask for does not save up what it did not
//! use: when it comes back it stands where the clock is, before all that are ahead of it. What a job takes is not known when
//! it starts; so what jobs of its model usually take is charged first, and put right when the job ends, within a bound: an
//! instance that hangs is no use of time that anybody asked for.
//!
//! Some shares have instances *reserved*. Nothing is held back for them. While fewer of their queries run than are reserved,
//! the next one goes before everybody else's work whatever its place on the clock; so it has the first instance that comes
//! free, which is within one service time. Until it comes others may use what is reserved: their jobs in progress end, and
//! none is started before it. What helps and need not be done (hedges, parities, stand-ins, replicas) does not count: it uses
//! up no reservation, and takes no instance that would otherwise stay free for one.
//!
//! Rejected: turns, which give a model of 100 ms twenty times what one of 5 ms gets; deficit round robin, which needs to
//! know what a job takes before it starts; reserved instances that are kept idle, which are idle when their owner is; a clock
//! that follows whoever was served last: where somebody is served out of turn, as what is late is, it takes from all others
//! what they are behind.
//!
//! Cold start: the first jobs of a model are charged nothing until one of them ends, so they are served in order of arrival.

mod book;
mod error;
mod settings;
mod share;
mod table;
mod usual;

pub use book::{Account, Book, Charge, Terms, Turn, Work};
pub use error::{Error, Refusal};
pub use settings::{Settings, ShareSettings};
pub use share::Due;
pub use table::{Asked, Table};
