//! Headers with the terms of a request that has no parameters of the protocol.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fleet::SHARE;
use crate::{Error, Parameter, Parameters};

/// Milliseconds until the answer must begin.
pub const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("parm-timeout-ms");
const PRIORITY: HeaderName = HeaderName::from_static("parm-priority");
const TENANT: HeaderName = HeaderName::from_static("parm-share");
const ACCEPT: HeaderName = HeaderName::from_static("parm-accept");

/// Takes the headers out, as parameters of the protocol.
pub fn take(headers: &mut HeaderMap) -> Result<Parameters, Error> {
    let mut parameters = Parameters::new();
    if let Some(value) = headers.remove(TIMEOUT_HEADER) {
        let micros = number(&TIMEOUT_HEADER, &value)?.saturating_mul(1000);
        // 0 means the default, as the parameter does.
        if micros > 0 {
            parameters.insert("timeout".into(), Parameter::Uint64(micros));
        }
    }
    if let Some(value) = headers.remove(PRIORITY) {
        parameters.insert("priority".into(), Parameter::Uint64(number(&PRIORITY, &value)?));
    }
    if let Some(value) = headers.remove(TENANT) {
        parameters.insert(SHARE.into(), text(&TENANT, &value)?.into());
    }
    if let Some(value) = headers.remove(ACCEPT) {
        let accept = text(&ACCEPT, &value)?.trim();
        let share = accept.parse().map(Parameter::Double);
        parameters.insert("parm_accept".into(), share.unwrap_or_else(|_| accept.into()));
    }
    Ok(parameters)
}

fn text<'a>(name: &HeaderName, value: &'a HeaderValue) -> Result<&'a str, Error> {
    value.to_str().map_err(|_| Error::Malformed { message: format!("header {name} is not text: {value:?}") })
}

fn number(name: &HeaderName, value: &HeaderValue) -> Result<u64, Error> {
    text(name, value)?
        .trim()
        .parse()
        .map_err(|_| Error::Malformed { message: format!("header {name} is not a number: {value:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_out_as_parameters() {
        let own =
            [("parm-timeout-ms", "20"), ("parm-priority", "1"), ("parm-share", "t"), ("parm-accept", "0.01")];
        let mut headers: HeaderMap = own
            .iter()
            .chain(&[("x", "y")])
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let parameters = take(&mut headers).unwrap();
        assert_eq!(parameters["timeout"], Parameter::Uint64(20_000));
        assert_eq!(parameters["priority"], Parameter::Uint64(1));
        assert_eq!(parameters["parm_share"].as_str(), Some("t"));
        assert_eq!(parameters["parm_accept"], Parameter::Double(0.01));
        assert_eq!(headers.len(), 1);
        headers.insert("parm-timeout-ms", "0".parse().unwrap());
        headers.insert("parm-accept", "exact".parse().unwrap());
        let parameters = take(&mut headers).unwrap();
        assert_eq!(parameters["parm_accept"].as_str(), Some("exact"));
        assert_eq!(parameters.get("timeout"), None);
        headers.insert("parm-timeout-ms", "soon".parse().unwrap());
        let error = take(&mut headers).unwrap_err().to_string();
        assert!(error.contains("header parm-timeout-ms is not a number"), "{error}");
    }
}
