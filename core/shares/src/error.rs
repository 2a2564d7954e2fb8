//! Errors of configured shares and of requests that name a share.

/// Invalid configuration of shares.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("invalid share name '{name}': use 1 to 64 letters, digits, '-', '_', '.' and '@'")]
    BadName { name: String },
    #[error("{what} '{name}' is in the shares '{one}' and '{other}': list it in one of them")]
    Twice { what: &'static str, name: String, one: String, other: String },
    #[error(
        "shares reserve {reserved} instances, but there are {instances}: lower share.NAME.reserved, or raise backend.instances"
    )]
    TooManyReserved { reserved: u64, instances: usize },
    #[error("unknown model '{model}' in share '{share}': list a model that is served here")]
    UnknownModel { share: String, model: String },
    #[error(
        "share '{share}' refers to key '{key}', which is not in the key file: create it with `parm keys new`"
    )]
    UnknownKey { share: String, key: String },
    #[error("share '{share}' refers to key '{key}', but keys are disabled: set server.keys_file")]
    NoKeyFile { share: String, key: String },
}

/// A request that may not be charged to the share that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Refusal {
    #[error("unknown share '{asked}' in parameter 'parm_share': use one of {known:?}, or omit it")]
    Unknown { asked: String, known: Vec<String> },
    #[error(
        "key '{key}' belongs to share '{own}' and may not use '{asked}': omit 'parm_share', or send a key of that \
         share"
    )]
    Tied { key: String, own: String, asked: String },
    #[error("share '{asked}' is restricted to its keys: omit 'parm_share', or send one of those keys")]
    Closed { asked: String },
}
