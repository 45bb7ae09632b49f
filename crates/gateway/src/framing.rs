//! What a head must say about its host and its body, beyond what HTTP's own reader insists on.
//!
//! Where two servers read one stream of bytes differently, one of them can be given a request that the other never
//! saw. So what another server might read in another way is refused, and its connection is closed.

use http::Method;
use http::header::{self, HeaderMap, HeaderValue};

use crate::reply::Refusal;

/// Refuses a head that names no host or several, one whose body is framed in any way but the two plain ones, and a
/// tunnel, after which bytes are no requests.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    if !only(headers, &header::HOST).is_some_and(|host| is_host(host.as_bytes())) {
        return Err(Refusal::Host);
    }
    // The reader goes by the last coding alone, and takes several lines for one.
    let coded = headers.contains_key(header::TRANSFER_ENCODING);
    let plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if coded && !only(headers, &header::TRANSFER_ENCODING).is_some_and(plain) {
        return Err(Refusal::Coding);
    }
    if method == Method::CONNECT {
        return Err(Refusal::Tunnel);
    }
    Ok(())
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Whether this is a host: a name, an IPv4 address or an IPv6 address in brackets, with a port or without. Names of other
/// characters, which RFC 3986 would allow, are nobody's.
pub(crate) fn is_host(text: &[u8]) -> bool {
    let name = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(b));
    let address = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_hexdigit() || b":.".contains(b));
    let port = |rest: &[u8]| match rest {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    match text {
        [b'[', rest @ ..] => {
            rest.iter().position(|b| *b == b']').is_some_and(|end| address(&rest[..end]) && port(&rest[end + 1..]))
        }
        _ => {
            let end = text.iter().position(|b| *b == b':').unwrap_or(text.len());
            name(&text[..end]) && port(&text[end..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_or_without() {
        for good in
            ["g", "gateway.example", "a_b-c.d", "127.0.0.1:8000", "g:", "[::1]", "[::ffff:1.2.3.4]:80", "G.EXAMPLE"]
        {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "g:x", "g:80:80", "g:123456", "u@g", "g/x", "g x", "g,h", "g\t", "[::1", "[]", "[g]", "[::1]x",
            "::1", "g\u{e9}",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
