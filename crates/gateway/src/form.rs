//! The model in a form (RFC 7578), as uploads of audio have it.
//!
//! An engine reads the same form with a reader of its own. What that might read in another way is refused, so that
//! nobody gets another model than the one that was checked.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

use crate::reply::Refusal;

/// The value of the field `model`, if the body is a form and has one.
///
/// # Errors
/// [`Refusal::BadBody`] if there are two, or if it is not plain what the fields are.
pub(crate) fn model(headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, Refusal> {
    let wrong = |problem: &str| Refusal::BadBody(format!("the form {problem}"));
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next().map_or("", |value| value.to_str().unwrap_or_default());
    if kinds.next().is_some() {
        return Err(wrong("has two content types"));
    }
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("multipart/form-data")) {
        return Ok(None);
    }
    let named = parameters(kind).ok_or_else(|| wrong("has a content type that is not plain"))?;
    let boundary = only(&named, "boundary").filter(|boundary| !boundary.is_empty());
    let delimiter = format!("--{}", boundary.ok_or_else(|| wrong("needs one boundary"))?);
    let starts: Vec<usize> = memmem::find_iter(body, delimiter.as_bytes()).collect();
    if starts.iter().any(|at| *at > 0 && !body[..*at].ends_with(b"\r\n")) {
        return Err(wrong("has its boundary within a line"));
    }
    let mut found = None;
    for (n, start) in starts.iter().enumerate() {
        let part = &body[start + delimiter.len()..*starts.get(n + 1).unwrap_or(&body.len())];
        if part.starts_with(b"--") && n + 1 == starts.len() {
            break;
        }
        if !part.starts_with(b"\r\n") {
            return Err(wrong("has lines that only begin like its boundary"));
        }
        let Some(end) = memmem::find(part, b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&part[..end]);
        let name = field(&head).ok_or_else(|| wrong("has a field whose name is not plain"))?;
        if name == MODEL {
            let value = &part[end + 4..];
            let value = String::from_utf8_lossy(value.strip_suffix(b"\r\n").unwrap_or(value)).into_owned();
            if found.replace(value).is_some() {
                return Err(wrong("has two fields called model"));
            }
        }
    }
    Ok(found)
}

const MODEL: &str = "model";

/// The name of a part's field; `None` if readers could differ about it.
fn field(head: &str) -> Option<String> {
    let lines: Vec<&str> = head.split("\r\n").filter(|line| !line.is_empty()).collect();
    let folded = lines.iter().any(|line| line.starts_with([' ', '\t']) || line.contains(['\r', '\n', '\0']));
    let mut values = lines.iter().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let value = values.next().filter(|_| !folded && values.next().is_none())?;
    let named = parameters(value)?;
    let other = |(name, _): &(String, String)| name.starts_with("name") && name != "name";
    let name = only(&named, "name").filter(|name| !name.contains(['\\', '%', '&']))?;
    (!named.iter().any(other)).then(|| name.to_owned())
}

/// The value of a parameter that is there exactly once.
fn only<'a>(named: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    let mut values = named.iter().filter(|(name, _)| name == wanted);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

/// The parameters behind a header's first word, with their names in small letters; `None` if it is not written as
/// RFC 9110, section 5.6.6, has it. Escapes stay in the values.
fn parameters(value: &str) -> Option<Vec<(String, String)>> {
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&b))
    };
    let mut rest = match value.split_once(';') {
        None => return Some(Vec::new()),
        Some((_, rest)) => rest,
    };
    let mut named = Vec::new();
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_start_matches([' ', '\t']);
        let (text, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let mut escaped = false;
                let end = quoted.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                })?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = after.find([';', ' ', '\t']).unwrap_or(after.len());
                (Some(&after[..end]).filter(|text| token(text))?, &after[end..])
            }
        };
        if !token(name) {
            return None;
        }
        named.push((name.to_ascii_lowercase(), text.to_owned()));
        match after.trim_matches([' ', '\t']) {
            "" => return Some(named),
            more => rest = more.strip_prefix(';')?,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(kind: &str, body: &str) -> Result<Option<String>, String> {
        let headers: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())].into_iter().collect();
        model(&headers, body.as_bytes()).map_err(|refusal| refusal.to_string())
    }

    fn part(head: &str, value: &str) -> String {
        format!("--x-1\r\n{head}\r\n\r\n{value}\r\n")
    }

    fn form(parts: &[String]) -> Result<Option<String>, String> {
        of("multipart/form-data; boundary=\"x-1\"", &format!("{}--x-1--\r\n", parts.concat()))
    }

    #[test]
    fn the_model_of_a_form_is_found_among_its_other_fields() {
        let file = part("Content-Disposition: form-data; name=\"file\"; filename=\"model; \\\"x\"", "name=\"model\"");
        let plain = part("content-disposition: form-data; name=\"model\"", "whisper/1");
        let token = part("Content-Type: text/plain\r\nCONTENT-DISPOSITION: form-data;name=model", "whisper/1");
        assert_eq!(form(&[file.clone(), plain.clone()]), Ok(Some("whisper/1".into())));
        assert_eq!(form(&[token, file.clone()]), Ok(Some("whisper/1".into())));
        assert_eq!(form(std::slice::from_ref(&file)), Ok(None));
        assert!(form(&[plain.clone(), file, plain]).is_err(), "which of the two an engine takes is not known");
        assert_eq!(model(&HeaderMap::new(), b"--x-1").unwrap(), None);
        assert_eq!(of("application/json", "{}"), Ok(None));
        assert_eq!(form(&[]), Ok(None));
    }

    #[test]
    fn a_form_that_readers_could_read_differently_is_refused() {
        for head in [
            "content-disposition: form-data; name =\"model\"",
            "content-disposition: form-data; name= \"model\"",
            "content-disposition: form-data; name*=utf-8''model",
            "content-disposition: form-data; name=\"a\"; name*=utf-8''model",
            "content-disposition: form-data; name=\"a\"\r\n ; name=\"model\"",
            "content-disposition: form-data; name*0=\"mo\"; name*1=\"del\"",
            "content-disposition: form-data; name=\"mo\\del\"",
            "content-disposition: form-data; name=\"mod%65l\"",
            "content-disposition: form-data; name=\"a\"; name=\"model\"",
            "content-disposition: form-data; name=\"a\"\r\ncontent-disposition: form-data; name=\"model\"",
            "content-disposition: form-data;\r\n name=\"model\"",
            "content-disposition: form-data; name=\"a\"\ncontent-disposition: form-data; name=\"model\"",
            "content-disposition: form-data; name=\"model",
            "content-disposition: form-data; name=\"a\" name=\"model\"",
            "content-type: text/plain",
        ] {
            assert!(form(&[part(head, "large")]).is_err(), "{head}");
        }
        let small = part("content-disposition: form-data; name=\"model\"", "small");
        assert!(of("multipart/form-data; boundary=x-1; boundary=y", &small).is_err());
        assert!(of("multipart/form-data", &small).is_err());
        assert!(of("multipart/form-data; boundary=\"\"", &small).is_err());
        let within = part("content-disposition: form-data; name=\"file\"", &format!("x{small}"));
        assert!(form(&[within]).is_err(), "only one of two readers takes that for a field");
        let longer = part("content-disposition: form-data; name=\"file\"", &format!("\r\n--x-10{}", &small[5..]));
        assert!(form(&[longer]).is_err());
        let after = format!("--x-1--\r\n{small}");
        assert!(of("multipart/form-data; boundary=x-1", &after).is_err());
        let twice: HeaderMap = ["multipart/form-data; boundary=x-1", "multipart/form-data; boundary=y"]
            .map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind)))
            .into_iter()
            .fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
        assert!(model(&twice, small.as_bytes()).is_err());
    }
}
