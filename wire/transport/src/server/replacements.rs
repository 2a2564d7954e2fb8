//! Parameters of a load that replace a model's configuration or files, as Triton takes them.

use parm_protocol::Error;

/// Rejects a load with such a parameter, because the repository of each server says what is loaded.
pub(super) fn reject<'a>(mut parameters: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let replaces = |name: &&str| *name == "config" || name.starts_with("file:");
    parameters.find(replaces).map_or(Ok(()), |name| {
        let name: String = name.chars().take(100).collect();
        let message = format!(
            "a load cannot replace '{name}': change the model in its repository, and load it without this parameter"
        );
        Err(Error::Malformed { message })
    })
}
