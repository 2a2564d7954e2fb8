//! Decompresses request bodies with `content-encoding: gzip` or `deflate`, within the bound of bodies.

use std::io::Read;

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};
use parm_protocol::Error;

use crate::budget::Share;

/// Bytes that are decompressed, and counted, at a time.
const PIECE: usize = 64 << 10;

/// A compression of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// The zlib format.
    Deflate,
}

impl Coding {
    /// The compression that the headers name, if any.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let Some(named) = headers.get(header::CONTENT_ENCODING) else { return Ok(None) };
        match named.to_str().map(str::to_ascii_lowercase).as_deref() {
            Ok("identity") => Ok(None),
            Ok("gzip" | "x-gzip") => Ok(Some(Self::Gzip)),
            Ok("deflate") => Ok(Some(Self::Deflate)),
            _ => Err(Error::Malformed {
                message: format!("unknown content-encoding {named:?}: use gzip, deflate or none"),
            }),
        }
    }

    /// Decompresses a body to at most `limit` bytes, which are counted as they appear.
    pub(super) fn inflate(self, body: &[u8], limit: usize, share: &Share) -> Result<Bytes, Error> {
        match self {
            Self::Gzip => whole(MultiGzDecoder::new(body), limit, share),
            Self::Deflate => whole(ZlibDecoder::new(body), limit, share),
        }
    }
}

fn whole(mut from: impl Read, limit: usize, share: &Share) -> Result<Bytes, Error> {
    let mut all = Vec::new();
    loop {
        let had = all.len();
        let read = from.by_ref().take(PIECE as u64).read_to_end(&mut all);
        read.map_err(|error| Error::Malformed {
            message: format!("the compressed body is damaged: {error}"),
        })?;
        if all.len() == had {
            return Ok(all.into());
        }
        if all.len() > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        share.grow(all.len() - had)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;
    use crate::budget::Budget;

    fn packed(body: &[u8]) -> [(Coding, Vec<u8>); 2] {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(body).unwrap();
        zlib.write_all(body).unwrap();
        [(Coding::Gzip, gzip.finish().unwrap()), (Coding::Deflate, zlib.finish().unwrap())]
    }

    #[test]
    fn body_is_inflated_within_its_bounds() {
        let body: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        for (coding, sent) in packed(&body) {
            let share = |bytes| Budget::new(bytes).share();
            assert_eq!(coding.inflate(&sent, body.len(), &share(1 << 20)).unwrap(), body);
            let bomb = coding.inflate(&sent, body.len() - 1, &share(1 << 20));
            assert_eq!(bomb, Err(Error::BodyTooLarge { limit: body.len() - 1 }));
            let full = coding.inflate(&sent, body.len(), &share(100_000));
            assert!(matches!(full, Err(Error::Overloaded { .. })), "{full:?}");
            let cut = coding.inflate(&sent[..sent.len() / 2], body.len(), &share(1 << 20)).unwrap_err();
            assert!(cut.to_string().contains("damaged"), "{cut}");
        }
    }

    #[test]
    fn unknown_compression_is_rejected() {
        let of = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static(name));
            Coding::of(&headers)
        };
        assert_eq!((of("GZIP"), of("identity")), (Ok(Some(Coding::Gzip)), Ok(None)));
        assert!(of("br").unwrap_err().to_string().contains("use gzip"));
    }
}
