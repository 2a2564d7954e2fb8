//! What can be wrong with shares: as they are set up, and as they are asked for.

/// Shares that cannot be set up so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error(
        "share '{name}' has no name that can be used: take up to 64 letters, digits, '-', '_', '.' and '@'"
    )]
    BadName { name: String },
    #[error("{what} '{name}' is in the shares '{one}' and '{other}': put it into one")]
    Twice { what: &'static str, name: String, one: String, other: String },
    #[error(
        "shares reserve {reserved} instances of {instances}: lower share.NAME.reserved, or raise backend.instances"
    )]
    TooManyReserved { reserved: u64, instances: usize },
    #[error("share '{share}' names the model '{model}', which is not served here: name one that is")]
    UnknownModel { share: String, model: String },
    #[error(
        "share '{share}' names the key '{key}', which the key file does not have: make it with parm keys new"
    )]
    UnknownKey { share: String, key: String },
    #[error("share '{share}' names the key '{key}', and nobody is asked for a key: set server.keys_file")]
    NoKeyFile { share: String, key: String },
}

/// A request that may not be charged to the share that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Refusal {
    #[error(
        "parameter 'parm_share' is '{asked}', and no share is called so: use one of {known:?}, or leave it out"
    )]
    Unknown { asked: String, known: Vec<String> },
    #[error(
        "key '{key}' belongs to the share '{own}' and cannot ask for '{asked}': leave 'parm_share' out, or send a key of that \
         share"
    )]
    Tied { key: String, own: String, asked: String },
    #[error(
        "the share '{asked}' is for the keys that it names: leave 'parm_share' out, or send one of those"
    )]
    Closed { asked: String },
}
